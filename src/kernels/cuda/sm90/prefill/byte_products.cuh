// Products of bytes: codes become E4M3 or signed integers, of which records hold the fragments, and are multiplied 128
// columns at a time. Those sums are whole numbers or keep 14 bits; under their scales they are added in f32.
#pragma once

#include <cuda_fp16.h>

#include <type_traits>

#include "kernels/cuda/sm90/prefill/plan.cuh"

namespace moracle::cuda {

// Fragments of 16 rows and 64 columns, two of 32 columns, and what their numbers are to be multiplied by.
template <RecordKind kKind, Operand kOperand>
struct ByteWeights;

using ByteFragments = std::uint32_t[4];

// 8-bit codes as they are, but for the bits of kFlipped.
template <std::uint32_t kFlipped>
struct EightBits {
  static __device__ __forceinline__ void decode(ByteFragments* to, const uint4 (&words)[2], uint2 /*scales*/) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      to[i][0] = words[i].x ^ kFlipped;
      to[i][1] = words[i].y ^ kFlipped;
      to[i][2] = words[i].z ^ kFlipped;
      to[i][3] = words[i].w ^ kFlipped;
    }
  }
};
// Scales carry what codes lack as bf16 (records.h).
template <RecordKind kKind>
struct ByteWeights<kKind, Operand::e4m3> : EightBits<0> {
  static constexpr float kFactor = 1.0F / record_form(kKind).code_factor;
};
// Codes count from -128.
template <>
struct ByteWeights<RecordKind::int8_row, Operand::int8> : EightBits<0x80808080U> {
  static constexpr float kFactor = 1.0F;
};

// Even 4-bit codes of a word are of row g, odd ones of row g + 8, in the order of bytes.
template <class Bytes>
struct Int4Bytes {
  static __device__ __forceinline__ void decode(ByteFragments* to, const uint4 (&words)[1], uint2 /*scales*/) {
    const std::uint32_t four[4] = {words[0].x, words[0].y, words[0].z, words[0].w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to[i / 2][i % 2 * 2] = Bytes::even(four[i]);
      to[i / 2][i % 2 * 2 + 1] = Bytes::odd(four[i]);
    }
  }
};
// 16 (code - 8): codes in the upper bits, the highest of which two's complement inverts.
struct SixteenTimes {
  static constexpr float kFactor = 1.0F / 16;
  static __device__ __forceinline__ std::uint32_t even(std::uint32_t word) { return odd(word << 4); }
  static __device__ __forceinline__ std::uint32_t odd(std::uint32_t word) { return (word & 0xF0F0F0F0U) ^ 0x80808080U; }
};
// Sign and magnitude of code - 8. E4M3 below 16 counts steps of 2^-9.
struct StepsOfE4m3 {
  static constexpr float kFactor = 0x1p9F;
  static __device__ __forceinline__ std::uint32_t even(std::uint32_t word) {
    const std::uint32_t below = ~word >> 3 & 0x01010101U;  // 1 where the code is less than 8
    return ((word & 0x07070707U) ^ below * 7) + below * 0x81;
  }
  static __device__ __forceinline__ std::uint32_t odd(std::uint32_t word) { return even(word >> 4); }
};
template <>
struct ByteWeights<RecordKind::int4_bf16, Operand::int8> : Int4Bytes<SixteenTimes>, SixteenTimes {};
template <>
struct ByteWeights<RecordKind::int4_f16, Operand::int8> : Int4Bytes<SixteenTimes>, SixteenTimes {};
template <>
struct ByteWeights<RecordKind::int4_bf16, Operand::e4m3> : Int4Bytes<StepsOfE4m3>, StepsOfE4m3 {};
template <>
struct ByteWeights<RecordKind::int4_f16, Operand::e4m3> : Int4Bytes<StepsOfE4m3>, StepsOfE4m3 {};

// E2M1 times 2^(step - 6): of each magnitude a byte, for rows g and g + 8 in 32 columns each. Where magnitudes rise, so
// do exponents: bytes are sums of a step in their upper five bits and what the magnitude adds.
template <>
struct ByteWeights<RecordKind::mxfp4_row, Operand::e4m3> {
  static constexpr float kFactor = 1.0F;
  static __device__ __forceinline__ void decode(ByteFragments* to, const uint4 (&words)[1], uint2 scales) {
    const std::uint32_t four[4] = {words[0].x, words[0].y, words[0].z, words[0].w};
    std::uint32_t low[4];  // of magnitudes 0 to 3, scale after scale
    std::uint32_t high[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t step = scales.x >> (8 * i) & 255U;
      low[i] = step * 0x08080800U + (0x0C080000U - kE4m3StepBias * 0x08080800U);
      high[i] = step * 0x08080808U + (0x1C181410U - kE4m3StepBias * 0x08080808U);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Nibbles codes(four[i]);
      to[i / 2][i % 2 * 2] = codes.with_signs<false>(codes.chosen<false>(low[i / 2], high[i / 2]));
      to[i / 2][i % 2 * 2 + 1] = codes.with_signs<true>(codes.chosen<true>(low[2 + i / 2], high[2 + i / 2]));
    }
  }
};

template <class Plan>
class ByteProducts {
  using Ring = GroupedRing<Plan>;
  using Place = typename Ring::Place;
  using Scales = typename Plan::Scales;
  using Weights = ByteWeights<Plan::kKind, Plan::kOperand>;
  using Part = std::conditional_t<Plan::kOperand == Operand::int8, std::int32_t, float>;
  static constexpr int kHalves = Plan::kHalves;
  static constexpr int kPartRows = 64;

 public:
  // Where no scale comes in between, products add to the sums of all columns. Integers fit up to 2^17 columns.
  static constexpr bool kInPlace = Plan::kForm.group < 128;
  using Sum = std::conditional_t<kInPlace, Part, float>;
  using Sums = Sum[kHalves][Plan::kMostRows / 2];
  static constexpr float kOutputFactor = Weights::kFactor;  // of sums

  __device__ __forceinline__ ByteProducts(const Ring& ring, int columns) : ring_(ring), columns_(columns) {}

  // The products of a tile of kWidth rows.
  template <int kWidth>
  __device__ __forceinline__ void multiply(Sums& sums, Place& at) const {
    if constexpr (kInPlace) {
      gemm_in_place<kWidth>(sums, at);
    } else {
      gemm_in_parts<kWidth>(sums, at);
    }
  }

  [[nodiscard]] static __device__ __forceinline__ float number(float sum) { return sum; }
  [[nodiscard]] static __device__ __forceinline__ float number(std::int32_t sum) { return __int2float_rn(sum); }

 private:
  using FourFragments = ByteFragments[4];  // of two panels

  // What the fragments of one of the thread's two products are made of.
  struct Held {
    CodeWords<Plan::kKind> words[2];
    uint2 scales[2];
  };
  __device__ __forceinline__ void load(Held& held, std::uint32_t stage, int half) const {
    const int tile = first_tile_of_warp<kHalves>() + half * 4;
#pragma unroll
    for (int panel = 0; panel < 2; ++panel) {
      const std::uint32_t weights = ring_.weights_at(stage, panel);
#pragma unroll
      for (int i = 0; i < kCodeWords<Plan::kKind>; ++i)
        held.words[panel][i] = load_shared_16(weights + tile * Plan::kTileCodes + i * 512 + lane_of_warp() * 16);
      if constexpr (Plan::kForm.group == 32)
        held.scales[panel] = Scales::load(ring_.scales_at(stage, panel) + tile * Scales::kBytes, lane_of_warp());
    }
  }
  static __device__ __forceinline__ void decode(FourFragments& to, const Held& held) {
    Weights::decode(to, held.words[0], held.scales[0]);
    Weights::decode(to + 2, held.words[1], held.scales[1]);
    // They are ready before products open.
#pragma unroll
    for (int i = 0; i < 16; ++i) asm volatile("" : "+r"(to[i / 4][i % 4])::"memory");
  }
  [[nodiscard]] __device__ __forceinline__ std::uint64_t rows_of(std::uint32_t stage, int panel) const {
    return swizzled_byte_rows(ring_.rows_at(stage, panel));
  }
  __device__ __forceinline__ void give_back_stage(std::uint32_t stage) const {
    arrive_warp(ring_.empty(stage), lane_of_warp());
  }

  // A product is always under way: while one half's is, the other half's fragments are made. Codes that are fragments
  // themselves are loaded behind the wait, or they would be loaded into those under way.
  template <int kWidth>
  __device__ __forceinline__ void gemm_in_place(Sums& sums, Place& at) const {
    constexpr bool kAhead = kHalves == 2 && kCodeWords<Plan::kKind> == 1;
    constexpr int kOther = kHalves - 1;
    FourFragments fragments[kHalves];
    Held held;
    ring_.wait_stage(at);
    load(held, at.stage, 0);
    decode(fragments[0], held);
    if constexpr (kAhead) load(held, at.stage, 1);
#pragma unroll 1
    for (int column = 0; column < columns_; column += Plan::kStageColumns) {
      const std::uint32_t first = at.stage;
      const std::uint32_t before = at.before();
      const bool more = column + Plan::kStageColumns < columns_;
      std::uint64_t inputs[2] = {rows_of(first, 0), rows_of(first, 1)};
      asm volatile("" : "+l"(inputs[0]), "+l"(inputs[1]));  // else ptxas holds one for each product
      const int add_to = column > 0 ? 1 : 0;
      wgmma_fence();
      gemm_all<kWidth>(sums[0], fragments[0], inputs, 0, add_to);
      wgmma_commit();
      at.step();
      if constexpr (kHalves == 2) {
        wgmma_wait<1>();
        if (column > 0) give_back_stage(before);
        if constexpr (!kAhead) load(held, first, 1);
        decode(fragments[kOther], held);
        wgmma_fence();
        gemm_all<kWidth>(sums[kOther], fragments[kOther], inputs, 0, add_to);
        wgmma_commit();
      }
      // A fence stands between what was loaded of these stages and their return: that of the wait, or its own.
      if (more) {
        ring_.wait_stage(at);
      } else {
        fence_proxy_async();
      }
      if constexpr (kAhead) load(held, at.stage, 0);
      wgmma_wait<kHalves - 1>();
      if constexpr (kHalves == 1) give_back_stage(first);
      if constexpr (!kAhead) load(held, at.stage, 0);
      decode(fragments[0], held);
      if constexpr (kAhead) load(held, at.stage, 1);
    }
    wgmma_wait<0>();
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
#pragma unroll
      for (int i = 0; i < kWidth / 2; ++i) bind(sums[half][i]);
    }
    if constexpr (kHalves == 2) give_back_stage(at.before());
  }

  // sums += the products of columns that share a scale.
  template <int kWidth>
  __device__ __forceinline__ void gemm_in_parts(Sums& sums, Place& at) const {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
#pragma unroll
      for (int i = 0; i < kWidth / 2; ++i) sums[half][i] = 0;
    }
#pragma unroll 1
    for (int column = 0; column < columns_; column += Plan::kStageColumns) {
      ring_.wait_stage(at);
      std::uint64_t inputs[2] = {rows_of(at.stage, 0), rows_of(at.stage, 1)};
      asm volatile("" : "+l"(inputs[0]), "+l"(inputs[1]));  // else ptxas holds one for each product
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        FourFragments fragments;
        Held held;
        load(held, at.stage, half);
        decode(fragments, held);
        add_parts<0, kWidth>(sums[half], fragments, first_tile_of_warp<kHalves>() + half * 4, at.stage, inputs);
      }
      fence_proxy_async();
      give_back_stage(at.stage);
      at.step();
    }
  }

  // Four products of kRows rows of inputs from `begin` on; `add_to` 0: the first overwrites.
  template <int kRows, class Sum>
  static __device__ __forceinline__ void gemm_all(Sum& sums, const FourFragments& fragments,
                                                  const std::uint64_t (&inputs)[2], int begin, int add_to) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto offset = static_cast<std::uint64_t>(begin * kPairColumns / 16 + i % 2 * 2);
      wgmma_bytes<kRows>(sums, fragments[i], inputs[i / 2] + offset, i > 0 ? 1 : add_to);
    }
  }

  template <int kBegin, int kWidth>
  __device__ __forceinline__ void add_parts(Sum (&sums)[Plan::kMostRows / 2], const FourFragments& fragments, int tile,
                                            std::uint32_t first, const std::uint64_t (&inputs)[2]) const {
    constexpr int kRows = kWidth - kBegin < kPartRows ? kWidth - kBegin : kPartRows;
    add_part<kBegin, kRows>(sums, fragments, tile, first, inputs);
    if constexpr (kBegin + kRows < kWidth) add_parts<kBegin + kRows, kWidth>(sums, fragments, tile, first, inputs);
  }

  // For kRows rows of inputs from kBegin on: up to kPartRows, for want of registers.
  template <int kBegin, int kRows>
  __device__ __forceinline__ void add_part(Sum (&sums)[Plan::kMostRows / 2], const FourFragments& fragments, int tile,
                                           std::uint32_t first, const std::uint64_t (&inputs)[2]) const {
    Part part[kRows / 2];
    wgmma_fence();
    gemm_all<kRows>(part, fragments, inputs, kBegin, 0);
    wgmma_commit();
    wgmma_wait<0>();
    const float2 rows = row_scales(Scales::load(ring_.scales_at(first, 0) + tile * Scales::kBytes, lane_of_warp()));
#pragma unroll
    for (int i = 0; i < kRows / 8; ++i) {
      // Parts are read behind the wait alone.
#pragma unroll
      for (int j = 0; j < 4; ++j) bind(part[4 * i + j]);
      float2 times = make_float2(1.0F, 1.0F);  // of inputs
      if constexpr (Plan::kInputScales) {
        const uint2 two = load_shared_8(ring_.input_scales_at(first) + (kBegin + 8 * i + lane_of_warp() % 4 * 2) * 4);
        times = make_float2(__uint_as_float(two.x), __uint_as_float(two.y));
      }
      float* const to = sums + kBegin / 2 + 4 * i;
      to[0] += number(part[4 * i]) * (rows.x * times.x);
      to[1] += number(part[4 * i + 1]) * (rows.x * times.y);
      to[2] += number(part[4 * i + 2]) * (rows.y * times.x);
      to[3] += number(part[4 * i + 3]) * (rows.y * times.y);
      // Added before the next products begin: what is left for later takes registers.
#pragma unroll
      for (int j = 0; j < 4; ++j) bind(to[j]);
    }
  }

  // Of rows g and g + 8 for 128 columns.
  [[nodiscard]] static __device__ __forceinline__ float2 row_scales(uint2 held) {
    if constexpr (Plan::kForm.scale_bytes == 4) return make_float2(both_parts(held.x), both_parts(held.y));
    if constexpr (Plan::kKind == RecordKind::int4_f16)
      return __half22float2(*reinterpret_cast<const __half2*>(&held.x));
    return make_float2(__uint_as_float(held.x << 16), __uint_as_float(held.x & 0xFFFF0000U));
  }

  static __device__ __forceinline__ void bind(float& part) { asm volatile("" : "+f"(part)::"memory"); }
  static __device__ __forceinline__ void bind(std::int32_t& part) { asm volatile("" : "+r"(part)::"memory"); }

  const Ring& ring_;
  int columns_;
};

template <class Plan>
struct GroupedProducts {
  using Type = std::conditional_t<Plan::kBytes, ByteProducts<Plan>, Bf16Products<Plan>>;
};

}  // namespace moracle::cuda
