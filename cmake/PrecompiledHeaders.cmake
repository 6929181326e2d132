# Headers of libraries that most units read, compiled once for each set of flags (MORACLE_PCH). Units include what they
# use all the same, and become the same machine code.
#
# ccache serves these headers to every folder of builds. Compiled again they would be other bytes, and so would be all
# objects to the cache: they name headers of the system alone, which have the same paths everywhere.

# moracle_precompile(TARGETS...): these read precompiled headers. They link moracle_flags, and what moracle_base does.
function(moracle_precompile)
  set_property(GLOBAL APPEND PROPERTY moracle_precompiled ${ARGN})
endfunction()

# moracle_precompile_headers(): makes them once all targets have their flags. Sources with flags of their own have
# SKIP_PRECOMPILE_HEADERS.
function(moracle_precompile_headers)
  if(NOT MORACLE_PCH)
    return()
  endif()
  get_property(targets GLOBAL PROPERTY moracle_precompiled)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    get_target_property(options ${target} COMPILE_OPTIONS)
    get_target_property(libraries ${target} LINK_LIBRARIES)
    set(tests "")
    if(GTest::gtest_main IN_LIST libraries)
      set(tests tests)
    endif()
    set(pie "")
    if(type STREQUAL EXECUTABLE)
      set(pie -fPIE)
    endif()
    string(MD5 flags "${options} ${pie} ${tests}")
    string(SUBSTRING "${flags}" 0 8 flags)
    moracle_headers(moracle_pch_${flags} "${options}" "${pie}" "${tests}")
    # g++ 12 tells the overlap of Flags.cmake by these names, too, where strings come precompiled; clang, the sanitizers
    # and the units without watch for true ones.
    target_compile_options(
      ${target} PRIVATE "$<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow;-Wno-stringop-overread;-Wno-array-bounds>"
                        ${pch_flags})
    set_target_properties(${target} PROPERTIES PRECOMPILE_HEADERS_REUSE_FROM moracle_pch_${flags})
  endforeach()
endfunction()

# What the compiler cache needs to hash them.
set(pch_flags "$<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>"
              "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")

# moracle_headers(NAME OPTIONS PIE TESTS): the headers for one set of flags, with those of tests or without.
function(moracle_headers name options pie tests)
  if(TARGET ${name})
    return()
  endif()
  file(WRITE "${CMAKE_BINARY_DIR}/pch/empty.cpp" "")
  add_library(${name} OBJECT "${CMAKE_BINARY_DIR}/pch/empty.cpp")
  if(options)
    target_compile_options(${name} PRIVATE ${options})
  endif()
  target_compile_options(${name} PRIVATE ${pch_flags})
  if(pie)
    target_compile_options(${name} PRIVATE ${pie})
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  endif()
  target_link_libraries(${name} PRIVATE moracle_flags ${MORACLE_FMT} nlohmann_json::nlohmann_json)
  target_precompile_headers(
    ${name}
    PRIVATE
    <algorithm>
    <array>
    <atomic>
    <charconv>
    <chrono>
    <cmath>
    <cstddef>
    <cstdint>
    <cstring>
    <deque>
    <filesystem>
    <fmt/format.h>
    <functional>
    <limits>
    <map>
    <memory>
    <mutex>
    <nlohmann/json.hpp>
    <numeric>
    <optional>
    <set>
    <span>
    <string>
    <string_view>
    <thread>
    <type_traits>
    <utility>
    <variant>
    <vector>)
  if(tests)
    target_link_libraries(${name} PRIVATE GTest::gtest)
    target_precompile_headers(${name} PRIVATE <fstream> <gtest/gtest.h> <random>)
  endif()
endfunction()
