# configured(SOURCE BUILD FAULT options...) configures by COMPILER, or ends with FAULT and what was said. Sets `said`,
# and `targets` as `ninja help` lists them.
function(configured source build fault)
  execute_process(COMMAND ${CMAKE_COMMAND} -G Ninja -S "${source}" -B "${build}" "-DCMAKE_CXX_COMPILER=${COMPILER}"
                          ${ARGN}
                  RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${fault}:\n${said}")
  endif()
  execute_process(COMMAND ${CMAKE_COMMAND} --build "${build}" --target help OUTPUT_VARIABLE targets)
  set(said "${said}" PARENT_SCOPE)
  set(targets "${targets}" PARENT_SCOPE)
endfunction()
