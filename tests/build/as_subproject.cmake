# A project that embeds this one gets its targets and nothing that only its developers want: no tests, no warnings as
# errors, no compiler launcher; and every file that configuring writes lies in that project's build tree.
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
file(REMOVE_RECURSE "${WORK}")
