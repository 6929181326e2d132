// Warpgroup products of Hopper: D[64, kTokens] += A[64, 16] B[16, kTokens], A in registers, B in shared memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace moracle::cuda {

// B as [tokens, 64 columns] of bf16: rows of 128 bytes, whose 16-byte chunks lie at (chunk ^ row % 8), eight rows in
// 1024 bytes (PTX ISA, "Matrix Descriptor Format", 128-byte swizzle). 16 columns further are 2 more.
__device__ __forceinline__ std::uint64_t swizzled_rows(std::uint32_t address) {
  return std::uint64_t{1} << 62 | std::uint64_t{64} << 32 | std::uint64_t{1} << 16 | address >> 4;
}

__device__ __forceinline__ void open_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most kLeft of the committed groups are under way.
template <int kLeft>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

// Lists of operands: sums come first, then A, B and whether D is added to.
#define MORACLE_SUMS_8(i)                                                                                     \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define MORACLE_NAMES_0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define MORACLE_NAMES_1 MORACLE_NAMES_0 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define MORACLE_NAMES_2 MORACLE_NAMES_1 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define MORACLE_NAMES_3 MORACLE_NAMES_2 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define MORACLE_NAMES_4 MORACLE_NAMES_3 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define MORACLE_NAMES_5 MORACLE_NAMES_4 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define MORACLE_NAMES_6 MORACLE_NAMES_5 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define MORACLE_NAMES_7 MORACLE_NAMES_6 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define MORACLE_OUT_0 MORACLE_SUMS_8(0)
#define MORACLE_OUT_1 MORACLE_OUT_0, MORACLE_SUMS_8(8)
#define MORACLE_OUT_2 MORACLE_OUT_1, MORACLE_SUMS_8(16)
#define MORACLE_OUT_3 MORACLE_OUT_2, MORACLE_SUMS_8(24)
#define MORACLE_OUT_4 MORACLE_OUT_3, MORACLE_SUMS_8(32)
#define MORACLE_OUT_5 MORACLE_OUT_4, MORACLE_SUMS_8(40)
#define MORACLE_OUT_6 MORACLE_OUT_5, MORACLE_SUMS_8(48)
#define MORACLE_OUT_7 MORACLE_OUT_6, MORACLE_SUMS_8(56)
#define MORACLE_WGMMA(tokens, index, a0, a1, a2, a3, b, add)                                              \
  if constexpr (kTokens == tokens) {                                                                      \
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %" #add                                              \
                 ", 0;\n"                                                                                 \
                 " wgmma.mma_async.sync.aligned.m64n" #tokens "k16.f32.bf16.bf16 {" MORACLE_NAMES_##index \
                 "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b ", p, 1, 1, 0;\n}"                   \
                 : MORACLE_OUT_##index                                                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(rows), "r"(add_to));                   \
  }

// kTokens a multiple of 16 up to 128; add_to 0 overwrites the sums.
template <int kTokens, int kSums>
__device__ __forceinline__ void multiply_group(float (&d)[kSums], const std::uint32_t (&a)[4], std::uint64_t rows,
                                               int add_to) {
  static_assert(kTokens % 16 == 0 && kTokens <= 2 * kSums);
  MORACLE_WGMMA(16, 0, 8, 9, 10, 11, 12, 13)
  MORACLE_WGMMA(32, 1, 16, 17, 18, 19, 20, 21)
  MORACLE_WGMMA(48, 2, 24, 25, 26, 27, 28, 29)
  MORACLE_WGMMA(64, 3, 32, 33, 34, 35, 36, 37)
  MORACLE_WGMMA(80, 4, 40, 41, 42, 43, 44, 45)
  MORACLE_WGMMA(96, 5, 48, 49, 50, 51, 52, 53)
  MORACLE_WGMMA(112, 6, 56, 57, 58, 59, 60, 61)
  MORACLE_WGMMA(128, 7, 64, 65, 66, 67, 68, 69)
}

#undef MORACLE_WGMMA
#undef MORACLE_OUT_7
#undef MORACLE_OUT_6
#undef MORACLE_OUT_5
#undef MORACLE_OUT_4
#undef MORACLE_OUT_3
#undef MORACLE_OUT_2
#undef MORACLE_OUT_1
#undef MORACLE_OUT_0
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
