# A project that embeds this one gets its targets and nothing that only its developers want: no tests, no warnings as
# errors, no compiler launcher; and every file that configuring writes lies in that project's build tree. CLI11 is for the
# program alone, Boost for the server alone: without both there is the library.
#
#   cmake -DSOURCE=... -DCOMPILER=... -DWORK=dir -P as_subproject.cmake
include("${CMAKE_CURRENT_LIST_DIR}/configured.cmake")
# What lies in the tree of sources; nothing where that is no clone.
function(tree_of result)
  execute_process(COMMAND git -C "${SOURCE}" status --porcelain --ignored OUTPUT_VARIABLE tree ERROR_QUIET)
  set(${result} "${tree}" PARENT_SCOPE)
endfunction()
tree_of(tree_before)
file(REMOVE_RECURSE "${WORK}")
file(WRITE "${WORK}/source/CMakeLists.txt"
     "cmake_minimum_required(VERSION 3.25)\nproject(embedding LANGUAGES CXX)\n"
     "add_subdirectory(\"${SOURCE}\" moracle EXCLUDE_FROM_ALL)\n")
configured("${WORK}/source" "${WORK}/build" "cannot be embedded" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON)
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
tree_of(tree_after)
if(NOT tree_after STREQUAL tree_before)
  message(FATAL_ERROR "in the tree of sources there were\n${tree_before}and now there are\n${tree_after}")
endif()
configured("${WORK}/source" "${WORK}/library" "without CLI11 and Boost there is no library" -DMORACLE_PROGRAM=OFF
           -DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON -DCMAKE_DISABLE_FIND_PACKAGE_Boost=ON)
if(NOT targets MATCHES "\nmoracle_shared: phony" OR targets MATCHES "\nmoracle: phony")
  message(FATAL_ERROR "without the program the targets are:\n${targets}")
endif()
file(REMOVE_RECURSE "${WORK}")
