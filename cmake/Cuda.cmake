# The CUDA object: a shared object of its own with a static CUDA runtime, which the program opens at run time.
#
#   moracle_cuda_object(NAME SOURCES...)
#
# Sources below sm90/ become machine code of sm_90a alone. The others are portable: for each of
# MORACLE_CUDA_ARCHITECTURES machine code, and PTX of 8.0, which drivers compile for GPUs that are not listed.
#
# nvcc is driven by command lines, since the object shares no target with the program. What ptxas says of registers,
# stack and spills is kept beside each object file, where scripts/check-cuda reads it; ccache tells it again.
function(moracle_cuda_object name)
  find_program(MORACLE_NVCC nvcc PATHS "${CMAKE_SOURCE_DIR}/.cuda/nvidia/cu13/bin" "${CUDAToolkit_ROOT}/bin"
                                       /usr/local/cuda/bin DOC "CUDA compiler" NO_DEFAULT_PATH)
  find_program(MORACLE_NVCC nvcc)
  if(NOT MORACLE_NVCC)
    message(FATAL_ERROR "MORACLE_CUDA needs nvcc of CUDA 13.0: wanted it in /usr/local/cuda or on PATH, found none; "
                        "scripts/setup cuda installs it into the checkout")
  endif()
  message(STATUS "CUDA compiler: ${MORACLE_NVCC}")
  cmake_path(GET MORACLE_NVCC PARENT_PATH toolkit)
  cmake_path(GET toolkit PARENT_PATH toolkit)
  set(flags -ccbin=${CMAKE_CXX_COMPILER} -std=c++20 -O3 --expt-relaxed-constexpr
            -Xcompiler=-fPIC,-fvisibility=hidden,-Wall,-Wextra -Xptxas=-v -I${PROJECT_SOURCE_DIR}/src)
  set(only_sm90 -gencode=arch=compute_90a,code=sm_90a)
  set(portable -gencode=arch=compute_80,code=compute_80)
  foreach(architecture IN LISTS MORACLE_CUDA_ARCHITECTURES)
    list(APPEND portable -gencode=arch=compute_${architecture},code=sm_${architecture})
  endforeach()
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/cuda")
  file(MAKE_DIRECTORY "${folder}")
  file(WRITE "${folder}/exports.map" "{ global: moracle_device_api; local: *; };\n")
  set(objects)
  foreach(source IN LISTS ARGN)
    cmake_path(GET source STEM stem)
    cmake_path(GET source PARENT_PATH parent)
    cmake_path(GET parent FILENAME parent)
    string(PREPEND stem "${parent}_")
    set(targets ${portable})
    set(object "${folder}/${stem}.o")
    if(source MATCHES "/sm90/" OR source MATCHES "/grouped_[^/]*$")
      set(targets ${only_sm90})
      set(object "${folder}/sm90_${stem}.o")
    endif()
    add_custom_command(
      OUTPUT "${object}" BYPRODUCTS "${object}.ptxas"
      COMMAND sh -c "\"$@\" 2>\"$0.ptxas\" || { cat \"$0.ptxas\" >&2; exit 1; }" "${object}"
              ${CMAKE_CXX_COMPILER_LAUNCHER} "${MORACLE_NVCC}" ${targets} ${flags} -MD -MF "${object}.d" -c "${source}"
              -o "${object}"
      DEPENDS "${source}" DEPFILE "${object}.d" COMMENT "Building CUDA object ${stem}" VERBATIM)
    list(APPEND objects "${object}")
  endforeach()
  set(library "${CMAKE_BINARY_DIR}/bin/libmoracle_cuda.so")
  add_custom_command(
    OUTPUT "${library}"
    COMMAND "${MORACLE_NVCC}" -ccbin=${CMAKE_CXX_COMPILER} -shared -cudart=static -L${toolkit}/lib
            -Xlinker=--version-script=${folder}/exports.map -Xlinker=--as-needed -o "${library}" ${objects}
    DEPENDS ${objects} COMMENT "Linking CUDA object" VERBATIM)
  add_custom_target(${name} ALL DEPENDS "${library}")
  set_target_properties(${name} PROPERTIES MORACLE_LIBRARY "${library}" MORACLE_OBJECTS "${folder}")
endfunction()
