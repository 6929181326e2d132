// Products of TF32 by a warp, of operands that lie in shared memory as f32. Tensor cores read the upper 19 bits of a
// number.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace moracle::cuda {

// sums[16, 8] += a[16, 8] b[8, 8]. Of lane l: rows l / 4 and l / 4 + 8 of a and sums, at columns l % 4 and l % 4 + 4 of
// a, and 2 (l % 4) and the next of sums; column l / 4 of b, at rows l % 4 and l % 4 + 4.
__device__ __forceinline__ void multiply_tf32(float (&sums)[4], const std::uint32_t (&a)[4],
                                              const std::uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// To 11 bits, halves away from zero.
__device__ __forceinline__ std::uint32_t round_tf32(float value) {
  return __float_as_uint(value) + 0x1000U;
}

// A number as two of 11 bits, which leave out 2^-21 of it at most.
template <int kCount>
struct SplitTf32 {
  std::uint32_t high[kCount];
  std::uint32_t low[kCount];

  __device__ __forceinline__ void set(int i, float value) {
    high[i] = __float_as_uint(value) & 0xFFFFE000U;
    low[i] = __float_as_uint(value - __uint_as_float(high[i]));
  }
};
__device__ __forceinline__ void multiply_split(float (&sums)[4], const SplitTf32<4>& a, const SplitTf32<2>& b) {
  multiply_tf32(sums, a.low, b.high);
  multiply_tf32(sums, a.high, b.low);
  multiply_tf32(sums, a.high, b.high);
}

}  // namespace moracle::cuda
