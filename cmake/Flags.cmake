# Warnings and sanitizers for our own code; every target links moracle_flags privately.
add_library(moracle_flags INTERFACE)
target_compile_options(moracle_flags INTERFACE -Wall -Wextra -Wpedantic -Wconversion)
if(MORACLE_WERROR)
  target_compile_options(moracle_flags INTERFACE -Werror)
endif()
# g++ 12 sees an overlap in literal + std::string that is not there (GCC bug 105651), and uninitialized members in
# std::variant (GCC bug 80635); clang and the sanitizers watch for both.
target_compile_options(moracle_flags INTERFACE "$<$<CXX_COMPILER_ID:GNU>:-Wno-restrict;-Wno-maybe-uninitialized>")
# Contraction would let the compiler fuse a*b+c where the ISA allows it, so that the scalar reference would round
# differently from one translation unit to the next; kernels that want FMA say so with intrinsics.
target_compile_options(moracle_flags INTERFACE -ffp-contract=off)

if(MORACLE_SANITIZE)
  string(REPLACE ";" "," _sanitizers "${MORACLE_SANITIZE}")
  # Lines are all that reports need, and the rest of debug information takes a tenth to a quarter of compiling.
  target_compile_options(moracle_flags INTERFACE -fsanitize=${_sanitizers} -fno-sanitize-recover=all
                                                 -fno-omit-frame-pointer -gline-tables-only)
  target_link_options(moracle_flags INTERFACE -fsanitize=${_sanitizers})
  # Where tests compute for seconds (moracle_room: -O1). All else is compiled by -O0, in half the time.
  set(optimized_rooms base scheme kernels moe text generate)
endif()
