// What a consumer warp makes of its half of a record: 16 rows x up to 512 columns times 8 tokens.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/sm90/decode/weights.cuh"

namespace moracle::cuda {

// -136 times the sum of a token's inputs over 64 columns, for the lane's two tokens.
__device__ __forceinline__ float2 start_of(uint4 low, uint4 high) {
  const std::uint32_t minus_136[4] = {0xC308C308U, 0xC308C308U, 0xC308C308U, 0xC308C308U};
  float d[4] = {};
  mma_bf16(d, minus_136, low.x, low.y);
  mma_bf16(d, minus_136, low.z, low.w);
  mma_bf16(d, minus_136, high.x, high.y);
  mma_bf16(d, minus_136, high.z, high.w);
  return make_float2(d[0], d[1]);
}

// int4 as 128 + code in bf16, which one lop3 makes; what is too much is -136 times the sum of the inputs, at which the
// accumulator starts (kAtSum), or is subtracted from each code where starts find no registers. A scale covers 128
// columns.
template <RecordKind kKind_, bool kAtSum = true>
struct StreamedInt4 {
  static constexpr RecordKind kKind = kKind_;
  static constexpr bool kStartsAtSum = kAtSum;
  static constexpr bool kInputGroups = false;
  static constexpr float kOutputFactor = 1.0F;

  // sums += the scaled products of 64 columns; `scales` of row g in the low half, of row g + 8 in the high half.
  static __device__ __forceinline__ void add_pair(float (&sums)[4], const uint4 (&held)[1], uint2 both, uint4 low,
                                                  uint4 high, float2 start) {
    const uint4 words = held[0];
    const std::uint32_t scales = both.x;
    float d[4] = {};
    if constexpr (kAtSum) {
      d[0] = d[2] = start.x;
      d[1] = d[3] = start.y;
    }
    std::uint32_t a[4];
    decode(a, words.x);
    mma_bf16(d, a, low.x, low.y);
    decode(a, words.y);
    mma_bf16(d, a, low.z, low.w);
    decode(a, words.z);
    mma_bf16(d, a, high.x, high.y);
    decode(a, words.w);
    mma_bf16(d, a, high.z, high.w);
    float upper = 0.0F;
    float lower = 0.0F;
    if constexpr (kKind == RecordKind::int4_f16) {
      const float2 two = __half22float2(*reinterpret_cast<const __half2*>(&scales));
      upper = two.x;
      lower = two.y;
    } else {
      upper = __uint_as_float(scales << 16);
      lower = __uint_as_float(scales & 0xFFFF0000U);
    }
    sums[0] += upper * d[0];
    sums[1] += upper * d[1];
    sums[2] += lower * d[2];
    sums[3] += lower * d[3];
  }

 private:
  static __device__ __forceinline__ void decode(std::uint32_t (&a)[4], std::uint32_t word) {
    decode_int4(a, word);
    if constexpr (!kAtSum) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = add_bf16x2(a[i], 0xC308C308U);
    }
  }
};

// E2M1 as 2^-126 of the number, of which inputs give back 2^64 and sums the rest; in nibbles as the number itself, in
// f16 as its inputs are. A scale covers 32 columns.
template <RecordKind kKind_>
struct StreamedE2m1 {
  static constexpr RecordKind kKind = kKind_;
  static constexpr bool kNibbles = record_form(kKind).nibbles;
  static constexpr bool kStartsAtSum = false;
  static constexpr bool kInputGroups = false;
  static constexpr float kOutputFactor = kNibbles ? 1.0F : 0x1p62F;

  // `scales` a byte each: of row g two groups, of row g + 8 two groups.
  static __device__ __forceinline__ void add_pair(float (&sums)[4], const uint4 (&held)[1], uint2 both, uint4 low,
                                                  uint4 high, float2 /*start*/) {
    const uint4 words = held[0];
    const std::uint32_t scales = both.x;
    float d[4] = {};
    add_products(d, words.x, low.x, low.y);
    add_products(d, words.y, low.z, low.w);
    add_scaled(sums, d, scales << 23, scales << 7);
    float e[4] = {};
    add_products(e, words.z, high.x, high.y);
    add_products(e, words.w, high.z, high.w);
    add_scaled(sums, e, scales << 15, scales >> 1);
  }

 private:
  static __device__ __forceinline__ void add_products(float (&d)[4], std::uint32_t word, std::uint32_t b0,
                                                      std::uint32_t b1) {
    std::uint32_t a[4];
    if constexpr (kNibbles) {
      decode_nibbles(a, word);
      mma_f16(d, a, b0, b1);
    } else {
      decode_e2m1(a, word);
      mma_bf16(d, a, b0, b1);
    }
  }
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

// The others: scales of 128 columns are those of sums, in f32; what is left are weights, or rows. `of_inputs` are the
// lane's tokens' scales of those columns, where inputs have such (kInputGroups).
template <RecordKind kKind_, bool kInputGroups_ = false>
struct StreamedWeights {
  static constexpr RecordKind kKind = kKind_;
  static constexpr bool kStartsAtSum = false;
  static constexpr bool kInputGroups = kInputGroups_;
  static constexpr float kOutputFactor = 1.0F;

  static __device__ __forceinline__ void add_pair(float (&sums)[4], const CodeWords<kKind>& words, uint2 scales,
                                                  uint4 low, uint4 high, float2 of_inputs) {
    constexpr RecordForm kForm = record_form(kKind);
    Fragments a;
    float d[4] = {};
    if constexpr (kForm.group == 128) {
      decode_8<kForm.code>(a, words);
    } else {
      ScaledWeights<kKind>::decode(a, words, scales);
    }
    mma_bf16(d, a[0], low.x, low.y);
    mma_bf16(d, a[1], low.z, low.w);
    mma_bf16(d, a[2], high.x, high.y);
    mma_bf16(d, a[3], high.z, high.w);
    const float upper = kForm.group == 128 ? both_parts(scales.x) : 1.0F;
    const float lower = kForm.group == 128 ? both_parts(scales.y) : 1.0F;
    const float2 inputs = kInputGroups ? of_inputs : make_float2(1.0F, 1.0F);
    sums[0] += upper * inputs.x * d[0];
    sums[1] += upper * inputs.y * d[1];
    sums[2] += lower * inputs.x * d[2];
    sums[3] += lower * inputs.y * d[3];
  }
};

// Half `half` of a record's kPairs x 64 columns: sums[0..1] of row lane / 4 and the lane's two tokens, sums[2..3] of
// the row 8 below. `inputs` holds two 16-byte words for each 64 columns, `of_pairs` what Code wants to know of
// kPairsANumber of these; `input_scales` are those of the lane's two tokens. kBatch x 64 columns are read from the slot
// at a time.
template <class Code, int kPairs, int kBatch, int kPairsANumber>
__device__ __forceinline__ void gemm_half_record(float (&sums)[4], std::uint32_t record, int half, int lane,
                                                 const uint4* inputs, const float2* of_pairs, float2 input_scales,
                                                 bool with_bias) {
  constexpr RecordForm kForm = record_form(Code::kKind);
  using Scales = ScalePlace<Code::kKind>;
  constexpr int kPairBytes = code_bytes(kForm, kPairColumns);
  constexpr int kHeld = (kPairs + 1) / 2;
  constexpr int kRecord = record_bytes(kForm, kPairs * kPairColumns);
  const auto lacks = [&](int pair) { return kPairs % 2 != 0 && pair == kHeld - 1 && half != 0; };
  const std::uint32_t codes = record + half * kHeld * kPairBytes + lane * 16;
  const std::uint32_t scales = record + kPairs * kPairBytes;
  // Bytes before those of a pair. `half` is no constant: what is one stays apart.
  const auto scales_before = [&](int pair) {
    if constexpr (kHeld % Scales::kPairs == 0)
      return half * (kHeld / Scales::kPairs * Scales::kBytes) + pair / Scales::kPairs * Scales::kBytes;
    return (half * kHeld + pair) / Scales::kPairs * Scales::kBytes;
  };
  // Of rows g and g + 8.
  const auto load_rows = [&](int at) {
    const std::uint32_t first = record + at + lane / 4 * 4;
    return make_float2(__uint_as_float(load_shared_4(first)), __uint_as_float(load_shared_4(first + 32)));
  };
  float2 bias = make_float2(0.0F, 0.0F);
  if constexpr (kForm.bias) {
    if (with_bias) bias = load_rows(kRecord);
  }
  float2 factors = make_float2(Code::kOutputFactor, Code::kOutputFactor);
  if constexpr (kForm.row_scales) factors = load_rows(kRecord - kTileRows * 4);
#pragma unroll
  for (int first = 0; first < kHeld; first += kBatch) {
    CodeWords<Code::kKind> words[kBatch];
    uint2 scale[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int pair = first + i;
      if (pair >= kHeld || lacks(pair)) continue;
#pragma unroll
      for (int w = 0; w < kCodeWords<Code::kKind>; ++w)
        words[i][w] = load_shared_16(codes + pair * kPairBytes + w * 512);
      if (Scales::kPairs == 2 && kHeld % 2 == 0 && pair % 2 == 1 && i > 0) {
        scale[i] = scale[i - 1];
      } else {
        scale[i] = Scales::load(scales + scales_before(pair), lane);
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int pair = first + i;
      if (pair >= kHeld || lacks(pair)) continue;
      Code::add_pair(sums, words[i], scale[i], inputs[2 * pair], inputs[2 * pair + 1],
                     Code::kStartsAtSum || Code::kInputGroups ? of_pairs[pair / kPairsANumber] : float2{});
    }
  }
  sums[0] = sums[0] * (factors.x * input_scales.x) + bias.x;
  sums[1] = sums[1] * (factors.x * input_scales.y) + bias.x;
  sums[2] = sums[2] * (factors.y * input_scales.x) + bias.y;
  sums[3] = sums[3] * (factors.y * input_scales.y) + bias.y;
}

}  // namespace moracle::cuda
