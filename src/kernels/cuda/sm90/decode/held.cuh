// What a consumer warp of the streaming kernel holds of the inputs of up to 8 tokens: in each lane one token's, a
// quarter of the warp's columns.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/sm90/decode/codes.cuh"
#include "kernels/cuda/sm90/decode/plan.cuh"
#include "kernels/cuda/sm90/decode/quantize.cuh"

namespace moracle::cuda {

template <class Plan, class Phase>
struct HeldInputs {
  using Rows = typename Plan::Rows;
  using Code = typename Plan::Code;
  static constexpr std::uint32_t kOnes = 0xFFFFFFFFU;
  static constexpr int kWords = 2 * Phase::kHeld;
  // 64 columns that share a number of `of_pairs`: scales are of 128, which some warps have halves of.
  static constexpr int kPairsANumber = Rows::kGroups && Phase::kHeld % 2 == 0 ? 2 : 1;
  static constexpr int kNumbers = Phase::kHeld / kPairsANumber;
  static constexpr int kScales = !Rows::kMeasured ? 0 : Rows::kGroups ? kNumbers : 1;

  uint4 words[kWords];
  float2 of_pairs[kNumbers];  // what Code wants to know of columns, for the lane's two columns of sums
  float scale = 1.0F;         // of the token whose inputs the lane holds; of two there is no register
  std::uint32_t loaded[kScales + 1];

  // Words [begin, end) from f32, `first` the lane's first column: rounded to bf16, or numbers of codes under the scale
  // that `inverse` inverts.
  __device__ __forceinline__ void load(const float* first, int warp, float inverse, int begin = 0, int end = kWords) {
#pragma unroll
    for (int i = begin; i < end; ++i) {
      if (Phase::lacks(i / 2, warp % 2)) continue;
      const float4 a = __ldg(reinterpret_cast<const float4*>(first + i * 32));
      const float4 b = __ldg(reinterpret_cast<const float4*>(first + i * 32) + 1);
      words[i] = make_uint4(rounded(a.x, a.y, inverse), rounded(a.z, a.w, inverse), rounded(b.x, b.y, inverse),
                            rounded(b.z, b.w, inverse));
      if (Plan::kSaveRegisters && i % 4 == 3) __syncwarp();  // loads of all words at once would take registers
    }
  }
  // The largest magnitude of the token's values that load() would round.
  static __device__ __forceinline__ float largest(const float* first, int warp, int begin = 0, int end = kWords) {
    float most = 0.0F;
#pragma unroll
    for (int i = begin; i < end; ++i) {
      if (Phase::lacks(i / 2, warp % 2)) continue;
      const float4 a = __ldg(reinterpret_cast<const float4*>(first + i * 32));
      const float4 b = __ldg(reinterpret_cast<const float4*>(first + i * 32) + 1);
      most = fmaxf(most, fmaxf(fmaxf(fmaxf(fabsf(a.x), fabsf(a.y)), fmaxf(fabsf(a.z), fabsf(a.w))),
                               fmaxf(fmaxf(fabsf(b.x), fabsf(b.y)), fmaxf(fabsf(b.z), fabsf(b.w)))));
    }
    most = fmaxf(most, __shfl_xor_sync(kOnes, most, 1));
    return fmaxf(most, __shfl_xor_sync(kOnes, most, 2));
  }
  // As load(), under the scale that the token's largest magnitude asks for.
  __device__ __forceinline__ void load_scaled(const float* first, int warp, float most) {
    const InputScale own = input_scale(Plan::kInput, most, 1.0F);
    scale = own.scale;
    load(first, warp, 1.0F / own.divisor);
  }
  // As load(), under the scales that 128 columns ask for.
  __device__ __forceinline__ void load_groups(const float* first, int warp) {
    constexpr int kGroupWords = 128 / 32;
    static_assert(kPairsANumber * kPairColumns == 128);
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) {
      const int begin = i * kGroupWords;
      const int end = begin + kGroupWords;
      const InputScale own = input_scale(Plan::kInput, largest(first, warp, begin, end), 1.0F);
      of_pairs[i] = of_columns(own.scale);
      load(first, warp, 1.0F / own.divisor, begin, end);
    }
  }
  static __device__ __forceinline__ std::uint32_t rounded(float first, float second, float inverse) {
    constexpr float kFactor = Plan::kInputFactor;
    constexpr bool kHalves = record_form(Code::kKind).nibbles;  // StreamedE2m1
    if constexpr (Plan::kInput != InputKind::bf16)
      return numbers_of<Plan::kInput, kHalves>(first * inverse, second * inverse, kFactor);
    return pack_bf16(first * kFactor, second * kFactor);
  }

  // From a row that other blocks pass on, its scales behind it.
  __device__ __forceinline__ void load(const uint4* row, int warp) {
    const uint4* const from = row + Phase::first_column(warp) / 8 + lane() % 4;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if (!Phase::lacks(i / 2, warp % 2)) words[i] = load_whole(from + i * 4);
    }
    const auto* const scales = reinterpret_cast<const std::uint32_t*>(row + Phase::kCols / 8);
#pragma unroll
    for (int i = 0; i < kScales; ++i) {
      if (has_scale(i, warp)) loaded[i] = load_whole_4(scales + (Rows::kGroups ? group(i, warp) : 0));
    }
  }
  // Until all of it is there.
  __device__ __forceinline__ void wait(const uint4* row, int warp) {
    for (;;) {
      bool missing = false;
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        if (!Phase::lacks(i / 2, warp % 2)) missing |= words[i].w == kOnes;
      }
#pragma unroll
      for (int i = 0; i < kScales; ++i) {
        if (has_scale(i, warp)) missing |= loaded[i] == kOnes;
      }
      if (!__any_sync(kOnes, missing)) break;
      load(row, warp);
    }
#pragma unroll
    for (int i = 0; i < kScales; ++i) {
      if (!has_scale(i, warp)) continue;
      if constexpr (Rows::kGroups) {
        of_pairs[i] = of_columns(__uint_as_float(loaded[i]));
      } else {
        scale = __uint_as_float(loaded[i]);
      }
    }
  }

  __device__ __forceinline__ void find_starts() {
    if constexpr (Code::kStartsAtSum) {
#pragma unroll
      for (int i = 0; i < Phase::kHeld; ++i) of_pairs[i] = start_of(words[2 * i], words[2 * i + 1]);
    }
  }
  // Of all columns, for the lane's two columns of sums.
  [[nodiscard]] __device__ __forceinline__ float2 scales() const {
    return Rows::kGroups ? make_float2(1.0F, 1.0F) : of_columns(scale);
  }

 private:
  [[nodiscard]] static __device__ __forceinline__ int lane() {
    return Plan::rematerialized(static_cast<int>(threadIdx.x)) % 32;
  }
  [[nodiscard]] static __device__ __forceinline__ bool has_scale(int i, int warp) {
    return !Rows::kGroups || !Phase::lacks(i * kPairsANumber, warp % 2);
  }
  // Of 128 columns, that of the warp's `i`-th number.
  [[nodiscard]] static __device__ __forceinline__ int group(int i, int warp) {
    return (Phase::first_column(warp) / kPairColumns + i * kPairsANumber) / 2;
  }
  [[nodiscard]] static __device__ __forceinline__ float2 of_columns(float own) {
    if constexpr (!Rows::kMeasured) return make_float2(own, own);
    const int first = lane() % 4 * 8;  // lane that holds the first of the two tokens
    return make_float2(__shfl_sync(kOnes, own, first), __shfl_sync(kOnes, own, first + 4));
  }
};

}  // namespace moracle::cuda
