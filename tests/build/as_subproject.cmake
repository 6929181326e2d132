# A project that embeds this one gets its targets and nothing that only its developers want: no tests, no warnings as
# errors, no compiler launcher; and every file that configuring writes lies in that project's build tree. CLI11 is for the
# program alone, Boost for the server alone: without both there is the library.
#
#   cmake -DSOURCE=... -DCOMPILER=... -DWORK=dir -P as_subproject.cmake
file(REMOVE_RECURSE "${WORK}")
file(WRITE "${WORK}/source/CMakeLists.txt"
     "cmake_minimum_required(VERSION 3.25)\nproject(embedding LANGUAGES CXX)\n"
     "add_subdirectory(\"${SOURCE}\" moracle EXCLUDE_FROM_ALL)\n")
execute_process(COMMAND ${CMAKE_COMMAND} -G Ninja -S "${WORK}/source" -B "${WORK}/build"
                        "-DCMAKE_CXX_COMPILER=${COMPILER}" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
                RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "cannot be embedded:\n${said}")
endif()
execute_process(COMMAND ${CMAKE_COMMAND} --build "${WORK}/build" --target help OUTPUT_VARIABLE targets)
if(NOT targets MATCHES "\nmoracle: phony" OR targets MATCHES "\ntest_")
  message(FATAL_ERROR "the targets are:\n${targets}")
endif()
file(READ "${WORK}/build/compile_commands.json" commands)
foreach(unwanted -Werror ccache)
  if(commands MATCHES "${unwanted}")
    message(FATAL_ERROR "compiled with ${unwanted}")
  endif()
endforeach()
file(GLOB written RELATIVE "${WORK}" "${WORK}/*")
list(SORT written)
if(NOT written STREQUAL "build;source")
  message(FATAL_ERROR "beside the build tree there are: ${written}")
endif()
execute_process(COMMAND ${CMAKE_COMMAND} -G Ninja -S "${WORK}/source" -B "${WORK}/library"
                        "-DCMAKE_CXX_COMPILER=${COMPILER}" -DMORACLE_PROGRAM=OFF -DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON
                        -DCMAKE_DISABLE_FIND_PACKAGE_Boost=ON
                RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "without CLI11 and Boost there is no library:\n${said}")
endif()
execute_process(COMMAND ${CMAKE_COMMAND} --build "${WORK}/library" --target help OUTPUT_VARIABLE targets)
if(NOT targets MATCHES "\nmoracle_shared: phony" OR targets MATCHES "\nmoracle: phony")
  message(FATAL_ERROR "without the program the targets are:\n${targets}")
endif()
file(REMOVE_RECURSE "${WORK}")
