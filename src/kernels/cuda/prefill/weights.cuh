// A fragments of weights times their scales in bf16, from the codes of records (decode/records.h).
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/decode/codes.cuh"

namespace moracle::cuda {

__device__ __forceinline__ std::uint32_t add_pairs(std::uint32_t a, std::uint32_t b) {
  std::uint32_t sum = 0;
  asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
  return sum;
}
__device__ __forceinline__ std::uint32_t multiply_pairs(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}
__device__ __forceinline__ std::uint32_t multiply_add_pairs(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t sum = 0;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}
__device__ __forceinline__ std::uint32_t low_twice(std::uint32_t word) {
  return __byte_perm(word, 0, 0x1010);
}
__device__ __forceinline__ std::uint32_t high_twice(std::uint32_t word) {
  return __byte_perm(word, 0, 0x3232);
}

template <class Code>
struct ScaledWeights;

// One rounding to bf16 of code times scale. An f16 scale is a sum of two in bf16.
template <DeviceScale kScale>
struct ScaledWeights<StreamedInt4<kScale>> {
  // Four fragments of 16 columns each; `scales` of row g in the low half, of row g + 8 in the high half.
  static __device__ __forceinline__ void decode(std::uint32_t (&to)[4][4], uint4 words, std::uint32_t scales) {
    std::uint32_t upper = low_twice(scales);
    std::uint32_t lower = high_twice(scales);
    std::uint32_t upper_rest = 0;
    std::uint32_t lower_rest = 0;
    if constexpr (kScale == DeviceScale::f16) {
      const float2 both = __half22float2(*reinterpret_cast<const __half2*>(&scales));
      upper = bf16_pair(both.x, both.x);
      lower = bf16_pair(both.y, both.y);
      const float upper_left = both.x - __uint_as_float(upper << 16);
      const float lower_left = both.y - __uint_as_float(lower << 16);
      upper_rest = bf16_pair(upper_left, upper_left);
      lower_rest = bf16_pair(lower_left, lower_left);
    }
    const std::uint32_t four[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      StreamedInt4<kScale>::decode(to[i], four[i]);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const std::uint32_t code = add_pairs(to[i][r], 0xC308C308U);
        if constexpr (kScale == DeviceScale::f16) {
          to[i][r] = multiply_add_pairs(code, r % 2 == 0 ? upper : lower,
                                        multiply_pairs(code, r % 2 == 0 ? upper_rest : lower_rest));
        } else {
          to[i][r] = multiply_pairs(code, r % 2 == 0 ? upper : lower);
        }
      }
    }
  }
};

// Codes are 2^-126 of their numbers, inputs 2^64 of theirs; so a scale 2^(s - 127) is 2^(s - 65) here. Exact down to
// 2^-62; smaller ones fade into zero. pack_records.cpp refuses scales above 2^65.
template <>
struct ScaledWeights<StreamedE2m1> {
  static __device__ __forceinline__ void decode(std::uint32_t (&to)[4][4], uint4 words, std::uint32_t scales) {
    const std::uint32_t four[4] = {words.x, words.y, words.z, words.w};
    const std::uint32_t exponents = scales + 0x3E3E3E3EU;
    const std::uint32_t upper[2] = {__byte_perm(exponents, 0, 0x0404) >> 1, __byte_perm(exponents, 0, 0x1414) >> 1};
    const std::uint32_t lower[2] = {__byte_perm(exponents, 0, 0x2424) >> 1, __byte_perm(exponents, 0, 0x3434) >> 1};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      StreamedE2m1::decode(to[i], four[i]);
#pragma unroll
      for (int r = 0; r < 4; ++r) to[i][r] = multiply_pairs(to[i][r], r % 2 == 0 ? upper[i / 2] : lower[i / 2]);
    }
  }
};

}  // namespace moracle::cuda
