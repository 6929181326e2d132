# The rooms' one-way dependences are enforced by include paths. This script compiles a file as a member of a room and
# expects success for an include of a room it depends on, and failure for one it must not see.
#
#   cmake -DCOMPILER=... -DINCLUDES="dir;dir" -DHEADER=format/format.h -DEXPECT=fail -DWORK=dir -P forbidden_include.cmake
file(MAKE_DIRECTORY "${WORK}")
file(WRITE "${WORK}/probe.cpp" "#include \"${HEADER}\"\nint main() { return 0; }\n")
set(flags "")
foreach(directory IN LISTS INCLUDES)
  list(APPEND flags "-I${directory}")
endforeach()
execute_process(COMMAND "${COMPILER}" -std=c++20 -fsyntax-only ${flags} "${WORK}/probe.cpp"
                RESULT_VARIABLE status ERROR_VARIABLE errors OUTPUT_QUIET)
if(EXPECT STREQUAL "fail")
  if(status EQUAL 0)
    message(FATAL_ERROR "${HEADER} could be included, though the room must not see it")
  endif()
  if(NOT errors MATCHES "No such file or directory|file not found")
    message(FATAL_ERROR "the include failed for another reason:\n${errors}")
  endif()
elseif(NOT status EQUAL 0)
  message(FATAL_ERROR "${HEADER} must be visible, but:\n${errors}")
endif()
