// What a consumer warp makes of its half of a record: 16 rows x up to 512 columns times 8 tokens.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/decode/ptx.cuh"
#include "kernels/cuda/decode/records.h"

namespace moracle::cuda {

// int4 as 128 + code in bf16, which one lop3 makes; what is too much is -136 times the sum of the inputs, at which the
// accumulator starts. A scale covers 128 columns.
template <DeviceScale kScale>
struct StreamedInt4 {
  static constexpr DeviceCode kCode = DeviceCode::int4;
  static constexpr bool kStartsAtSum = true;
  static constexpr float kInputFactor = 1.0F;
  static constexpr float kOutputFactor = 1.0F;
  static constexpr int kPairsAScale = 2;

  static __device__ __forceinline__ void decode(std::uint32_t (&a)[4], std::uint32_t word) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(a[i]) : "r"(word >> (4 * i)), "r"(0x000F000FU), "r"(0x43004300U));
    }
  }
  // sums += the scaled products of 64 columns; `scales` of row g in the low half, of row g + 8 in the high half.
  static __device__ __forceinline__ void add_pair(float (&sums)[4], uint4 words, std::uint32_t scales, uint4 low,
                                                  uint4 high, float2 start) {
    float d[4] = {start.x, start.y, start.x, start.y};
    std::uint32_t a[4];
    decode(a, words.x);
    multiply(d, a, low.x, low.y);
    decode(a, words.y);
    multiply(d, a, low.z, low.w);
    decode(a, words.z);
    multiply(d, a, high.x, high.y);
    decode(a, words.w);
    multiply(d, a, high.z, high.w);
    float upper = 0.0F;
    float lower = 0.0F;
    if constexpr (kScale == DeviceScale::f16) {
      const float2 both = __half22float2(*reinterpret_cast<const __half2*>(&scales));
      upper = both.x;
      lower = both.y;
    } else {
      upper = __uint_as_float(scales << 16);
      lower = __uint_as_float(scales & 0xFFFF0000U);
    }
    sums[0] += upper * d[0];
    sums[1] += upper * d[1];
    sums[2] += lower * d[2];
    sums[3] += lower * d[3];
  }
};

// E2M1 as a bf16 whose exponent counts from 1: 2^-126 of the number, exact. Inputs are 2^64 of theirs, so that no
// product leaves f32, and sums are given back the 2^62 that is missing. A scale covers 32 columns.
struct StreamedE2m1 {
  static constexpr DeviceCode kCode = DeviceCode::e2m1;
  static constexpr bool kStartsAtSum = false;
  static constexpr float kInputFactor = 0x1p64F;
  static constexpr float kOutputFactor = 0x1p62F;
  static constexpr int kPairsAScale = 1;

  static __device__ __forceinline__ void decode(std::uint32_t (&a)[4], std::uint32_t word) {
    constexpr std::uint32_t kMask = 0x81C081C0U;
    a[0] = word & kMask;
    a[1] = word << 3 & kMask;
    a[2] = word << 6 & kMask;
    a[3] = (word << 1 & 0x80008000U) | (word >> 3 & 0x01800180U) | (word >> 7 & 0x00400040U);
  }
  // `scales` a byte each: of row g two groups, of row g + 8 two groups.
  static __device__ __forceinline__ void add_pair(float (&sums)[4], uint4 words, std::uint32_t scales, uint4 low,
                                                  uint4 high, float2 /*start*/) {
    std::uint32_t a[4];
    float d[4] = {};
    decode(a, words.x);
    multiply(d, a, low.x, low.y);
    decode(a, words.y);
    multiply(d, a, low.z, low.w);
    add_scaled(sums, d, scales << 23, scales << 7);
    float e[4] = {};
    decode(a, words.z);
    multiply(e, a, high.x, high.y);
    decode(a, words.w);
    multiply(e, a, high.z, high.w);
    add_scaled(sums, e, scales << 15, scales >> 1);
  }

 private:
  static __device__ __forceinline__ void add_scaled(float (&sums)[4], const float (&d)[4], std::uint32_t upper,
                                                    std::uint32_t lower) {
    const float up = __uint_as_float(upper & 0x7F800000U);
    const float down = __uint_as_float(lower & 0x7F800000U);
    sums[0] += up * d[0];
    sums[1] += up * d[1];
    sums[2] += down * d[2];
    sums[3] += down * d[3];
  }
};

// -136 times the sum of a token's inputs over 64 columns, for the lane's two tokens.
__device__ __forceinline__ float2 start_of(uint4 low, uint4 high) {
  const std::uint32_t minus_136[4] = {0xC308C308U, 0xC308C308U, 0xC308C308U, 0xC308C308U};
  float d[4] = {};
  multiply(d, minus_136, low.x, low.y);
  multiply(d, minus_136, low.z, low.w);
  multiply(d, minus_136, high.x, high.y);
  multiply(d, minus_136, high.z, high.w);
  return make_float2(d[0], d[1]);
}

// Half `half` of a record's kPairs x 64 columns: sums[0..1] of row lane / 4 and the lane's two tokens, sums[2..3] of
// the row 8 below. `inputs` holds two 16-byte words for each 64 columns; kBatch x 64 columns are read from the slot at
// a time.
template <class Code, int kPairs, int kBatch>
__device__ __forceinline__ void multiply_half(float (&sums)[4], std::uint32_t record, int half, int lane,
                                              const uint4* inputs, const float2* starts, bool with_bias) {
  constexpr int kHeld = (kPairs + 1) / 2;
  const auto lacks = [&](int pair) { return kPairs % 2 != 0 && pair == kHeld - 1 && half != 0; };
  const std::uint32_t codes = record + half * kHeld * 512 + lane * 16;
  const std::uint32_t scales = record + kPairs * 512 + lane / 4 * 4;
  float2 bias = make_float2(0.0F, 0.0F);
  if constexpr (record_form(Code::kCode).bias) {
    if (with_bias) {
      const std::uint32_t at =
          record + static_cast<std::uint32_t>(record_bytes(Code::kCode, kPairs * kPairColumns)) + lane / 4 * 4;
      bias = make_float2(__uint_as_float(load_shared_4(at)), __uint_as_float(load_shared_4(at + 32)));
    }
  }
#pragma unroll
  for (int first = 0; first < kHeld; first += kBatch) {
    uint4 words[kBatch];
    std::uint32_t scale[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int pair = first + i;
      if (pair >= kHeld || lacks(pair)) continue;
      words[i] = load_shared_16(codes + pair * 512);
      if (Code::kPairsAScale == 2 && kHeld % 2 == 0 && pair % 2 == 1 && i > 0) {
        scale[i] = scale[i - 1];
      } else {
        scale[i] = load_shared_4(scales + (half * kHeld + pair) / Code::kPairsAScale * 32);
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int pair = first + i;
      if (pair >= kHeld || lacks(pair)) continue;
      Code::add_pair(sums, words[i], scale[i], inputs[2 * pair], inputs[2 * pair + 1],
                     Code::kStartsAtSum ? starts[pair] : float2{});
    }
  }
  sums[0] = sums[0] * Code::kOutputFactor + bias.x;
  sums[1] = sums[1] * Code::kOutputFactor + bias.x;
  sums[2] = sums[2] * Code::kOutputFactor + bias.y;
  sums[3] = sums[3] * Code::kOutputFactor + bias.y;
}

}  // namespace moracle::cuda
