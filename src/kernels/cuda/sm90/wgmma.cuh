// Warpgroup products of Hopper, A in registers or shared memory, B in shared memory: D[64, kTokens] += A[64, 16] B[16,
// kTokens] of bf16, A[64, 32] B[32, kTokens] of bytes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace moracle::cuda {

// B as [tokens, 64 columns], eight rows one after the other (PTX ISA, "Matrix Descriptor Format"). The next 16 columns
// of bf16, or 32 bytes, are 2 more. bf16: rows of 128 bytes, whose 16-byte chunks lie at (chunk ^ row % 8).
__device__ __forceinline__ std::uint64_t swizzled_rows(std::uint32_t address) {
  return std::uint64_t{1} << 62 | std::uint64_t{64} << 32 | std::uint64_t{1} << 16 | address >> 4;
}
// Bytes: rows of 64, whose 16-byte chunks lie at (chunk ^ row / 2 % 4).
__device__ __forceinline__ std::uint64_t swizzled_byte_rows(std::uint32_t address) {
  return std::uint64_t{2} << 62 | std::uint64_t{32} << 32 | std::uint64_t{1} << 16 | address >> 4;
}

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most kLeft of the committed groups are under way.
template <int kLeft>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

// Lists of operands: sums come first, then A, B and whether D is added to. `bind` is the constraint of a sum.
#define MORACLE_SUMS_8(bind, i)                                                                               \
  bind(d[i]), bind(d[i + 1]), bind(d[i + 2]), bind(d[i + 3]), bind(d[i + 4]), bind(d[i + 5]), bind(d[i + 6]), \
      bind(d[i + 7])
#define MORACLE_NAMES_0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define MORACLE_NAMES_1 MORACLE_NAMES_0 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define MORACLE_NAMES_2 MORACLE_NAMES_1 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define MORACLE_NAMES_3 MORACLE_NAMES_2 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define MORACLE_NAMES_4 MORACLE_NAMES_3 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define MORACLE_NAMES_5 MORACLE_NAMES_4 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define MORACLE_NAMES_6 MORACLE_NAMES_5 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define MORACLE_NAMES_7 MORACLE_NAMES_6 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define MORACLE_NAMES_15                             \
  MORACLE_NAMES_7                                    \
  ", %64, %65, %66, %67, %68, %69, %70, %71"         \
  ", %72, %73, %74, %75, %76, %77, %78, %79"         \
  ", %80, %81, %82, %83, %84, %85, %86, %87"         \
  ", %88, %89, %90, %91, %92, %93, %94, %95"         \
  ", %96, %97, %98, %99, %100, %101, %102, %103"     \
  ", %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119" \
  ", %120, %121, %122, %123, %124, %125, %126, %127"
#define MORACLE_OUT_0(bind) MORACLE_SUMS_8(bind, 0)
#define MORACLE_OUT_1(bind) MORACLE_OUT_0(bind), MORACLE_SUMS_8(bind, 8)
#define MORACLE_OUT_2(bind) MORACLE_OUT_1(bind), MORACLE_SUMS_8(bind, 16)
#define MORACLE_OUT_3(bind) MORACLE_OUT_2(bind), MORACLE_SUMS_8(bind, 24)
#define MORACLE_OUT_4(bind) MORACLE_OUT_3(bind), MORACLE_SUMS_8(bind, 32)
#define MORACLE_OUT_5(bind) MORACLE_OUT_4(bind), MORACLE_SUMS_8(bind, 40)
#define MORACLE_OUT_6(bind) MORACLE_OUT_5(bind), MORACLE_SUMS_8(bind, 48)
#define MORACLE_OUT_7(bind) MORACLE_OUT_6(bind), MORACLE_SUMS_8(bind, 56)
#define MORACLE_OUT_15(bind)                                                                                    \
  MORACLE_OUT_7(bind), MORACLE_SUMS_8(bind, 64), MORACLE_SUMS_8(bind, 72), MORACLE_SUMS_8(bind, 80),            \
      MORACLE_SUMS_8(bind, 88), MORACLE_SUMS_8(bind, 96), MORACLE_SUMS_8(bind, 104), MORACLE_SUMS_8(bind, 112), \
      MORACLE_SUMS_8(bind, 120)
#define MORACLE_FLOAT(d) "+f"(d)
#define MORACLE_INT(d) "+r"(d)
// `types` are those of a product, `scales` what follows the predicate.
#define MORACLE_WGMMA(bind, types, scales, tokens, index, a0, a1, a2, a3, b, add)              \
  if constexpr (kTokens == tokens) {                                                           \
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %" #add                                   \
                 ", 0;\n"                                                                      \
                 " wgmma.mma_async.sync.aligned.m64n" #tokens types " {" MORACLE_NAMES_##index \
                 "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b ", p" scales ";\n}"       \
                 : MORACLE_OUT_##index(bind)                                                   \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(rows), "r"(add_to));        \
  }
#define MORACLE_SHARED_WGMMA(tokens, index, first, second, add)                                           \
  if constexpr (kTokens == tokens) {                                                                      \
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %" #add                                              \
                 ", 0;\n"                                                                                 \
                 " wgmma.mma_async.sync.aligned.m64n" #tokens "k16.f32.bf16.bf16 {" MORACLE_NAMES_##index \
                 "}, %" #first ", %" #second ", p, 1, 1, 0, 0;\n}"                                        \
                 : MORACLE_OUT_##index(MORACLE_FLOAT)                                                     \
                 : "l"(a), "l"(b), "r"(add_to));                                                          \
  }
#define MORACLE_WGMMAS(bind, types, scales)                          \
  MORACLE_WGMMA(bind, types, scales, 16, 0, 8, 9, 10, 11, 12, 13)    \
  MORACLE_WGMMA(bind, types, scales, 32, 1, 16, 17, 18, 19, 20, 21)  \
  MORACLE_WGMMA(bind, types, scales, 48, 2, 24, 25, 26, 27, 28, 29)  \
  MORACLE_WGMMA(bind, types, scales, 64, 3, 32, 33, 34, 35, 36, 37)  \
  MORACLE_WGMMA(bind, types, scales, 80, 4, 40, 41, 42, 43, 44, 45)  \
  MORACLE_WGMMA(bind, types, scales, 96, 5, 48, 49, 50, 51, 52, 53)  \
  MORACLE_WGMMA(bind, types, scales, 112, 6, 56, 57, 58, 59, 60, 61) \
  MORACLE_WGMMA(bind, types, scales, 128, 7, 64, 65, 66, 67, 68, 69) \
  MORACLE_WGMMA(bind, types, scales, 256, 15, 128, 129, 130, 131, 132, 133)

// kTokens a multiple of 16 up to 128, or 256; add_to 0 overwrites the sums.
template <int kTokens, int kSums>
__device__ __forceinline__ void wgmma_bf16(float (&d)[kSums], const std::uint32_t (&a)[4], std::uint64_t rows,
                                           int add_to) {
  static_assert(kTokens % 16 == 0 && kTokens <= 2 * kSums);
  MORACLE_WGMMAS(MORACLE_FLOAT, "k16.f32.bf16.bf16", ", 1, 1, 0")
}
// The same with A in shared memory, 64 rows as B has its own.
template <int kTokens, int kSums>
__device__ __forceinline__ void wgmma_shared_bf16(float (&d)[kSums], std::uint64_t a, std::uint64_t b, int add_to) {
  static_assert(kTokens == 2 * kSums && (kTokens == 64 || kTokens == 128 || kTokens == 256));
  MORACLE_SHARED_WGMMA(64, 3, 32, 33, 34)
  MORACLE_SHARED_WGMMA(128, 7, 64, 65, 66)
  MORACLE_SHARED_WGMMA(256, 15, 128, 129, 130)
}
// Of E4M3 numbers, whose sums the unit cuts to about 14 bits (DeepSeek-V3's report, section 3.3.2).
template <int kTokens, int kSums>
__device__ __forceinline__ void wgmma_bytes(float (&d)[kSums], const std::uint32_t (&a)[4], std::uint64_t rows,
                                            int add_to) {
  static_assert(kTokens % 16 == 0 && kTokens <= 2 * kSums);
  MORACLE_WGMMAS(MORACLE_FLOAT, "k32.f32.e4m3.e4m3", ", 1, 1")
}
// Of signed integers.
template <int kTokens, int kSums>
__device__ __forceinline__ void wgmma_bytes(std::int32_t (&d)[kSums], const std::uint32_t (&a)[4], std::uint64_t rows,
                                            int add_to) {
  static_assert(kTokens % 16 == 0 && kTokens <= 2 * kSums);
  MORACLE_WGMMAS(MORACLE_INT, "k32.s32.s8.s8", "")
}

#undef MORACLE_WGMMAS
#undef MORACLE_SHARED_WGMMA
#undef MORACLE_WGMMA
#undef MORACLE_INT
#undef MORACLE_FLOAT
#undef MORACLE_OUT_15
#undef MORACLE_OUT_7
#undef MORACLE_OUT_6
#undef MORACLE_OUT_5
#undef MORACLE_OUT_4
#undef MORACLE_OUT_3
#undef MORACLE_OUT_2
#undef MORACLE_OUT_1
#undef MORACLE_OUT_0
#undef MORACLE_NAMES_15
#undef MORACLE_NAMES_7
#undef MORACLE_NAMES_6
#undef MORACLE_NAMES_5
#undef MORACLE_NAMES_4
#undef MORACLE_NAMES_3
#undef MORACLE_NAMES_2
#undef MORACLE_NAMES_1
#undef MORACLE_NAMES_0
#undef MORACLE_SUMS_8

}  // namespace moracle::cuda
