# The library exports what moracle.h declares, under the version of its ABI, and nothing else.
#
#   cmake -DLIBRARY=libmoracle.so -DHEADER=moracle.h -P exports.cmake
execute_process(COMMAND nm -D --defined-only --with-symbol-versions "${LIBRARY}" OUTPUT_VARIABLE said
                RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "nm fails on ${LIBRARY}")
endif()
string(REGEX MATCHALL "[^ \n]+\n" lines "${said}")
string(REGEX REPLACE "\n" "" exported "${lines}")
list(REMOVE_ITEM exported "MORACLE_0" "MORACLE_0@@MORACLE_0")
file(READ "${HEADER}" header)
string(REGEX MATCHALL "MORACLE_API [^(]*[ *](moracle_[a-z_]+)\\(" declarations "${header}")
set(declared "")
foreach(declaration IN LISTS declarations)
  string(REGEX REPLACE ".*[ *](moracle_[a-z_]+)\\($" "\\1@@MORACLE_0" name "${declaration}")
  list(APPEND declared "${name}")
endforeach()
list(SORT exported)
list(SORT declared)
if(NOT exported STREQUAL declared)
  message(FATAL_ERROR "exported: ${exported}\ndeclared: ${declared}")
endif()
