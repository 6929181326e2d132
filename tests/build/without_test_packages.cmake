# A machine without GoogleTest or without zlib configures, says that tests are not built and how to get them, and has the
# program among its targets.
#
#   cmake -DSOURCE=... -DCOMPILER=... -DWORK=dir -P without_test_packages.cmake
foreach(package GTest ZLIB)
  file(REMOVE_RECURSE "${WORK}")
  execute_process(COMMAND ${CMAKE_COMMAND} -G Ninja -S "${SOURCE}" -B "${WORK}" "-DCMAKE_CXX_COMPILER=${COMPILER}"
                          "-DCMAKE_DISABLE_FIND_PACKAGE_${package}=ON"
                  RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "without ${package} nothing can be built:\n${said}")
  endif()
  if(NOT said MATCHES "Tests: not built: [^\n]*scripts/setup test")
    message(FATAL_ERROR "without ${package} nothing is said about tests:\n${said}")
  endif()
  execute_process(COMMAND ${CMAKE_COMMAND} --build "${WORK}" --target help OUTPUT_VARIABLE targets)
  if(NOT targets MATCHES "\nmoracle: phony" OR targets MATCHES "\ntest_")
    message(FATAL_ERROR "without ${package} the targets are:\n${targets}")
  endif()
endforeach()
file(REMOVE_RECURSE "${WORK}")
