# A machine without GoogleTest or without zlib configures, says that tests are not built and how to get them, and has the
# program among its targets.
#
#   cmake -DSOURCE=... -DCOMPILER=... -DWORK=dir -P without_test_packages.cmake
include("${CMAKE_CURRENT_LIST_DIR}/configured.cmake")
foreach(package GTest ZLIB)
  file(REMOVE_RECURSE "${WORK}")
  configured("${SOURCE}" "${WORK}" "without ${package} nothing can be built"
             "-DCMAKE_DISABLE_FIND_PACKAGE_${package}=ON")
  if(NOT said MATCHES "Tests: not built: [^\n]*scripts/setup test")
    message(FATAL_ERROR "without ${package} nothing is said about tests:\n${said}")
  endif()
  if(NOT targets MATCHES "\nmoracle: phony" OR targets MATCHES "\ntest_")
    message(FATAL_ERROR "without ${package} the targets are:\n${targets}")
  endif()
endforeach()
file(REMOVE_RECURSE "${WORK}")
