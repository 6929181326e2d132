// Activation quantization within the streaming kernel. A code's number is exact in bf16, so that products are those of
// the scheme; scales are those of sums.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/sm90/decode/plan.cuh"
#include "kernels/cuda/sm90/decode/weights.cuh"

namespace moracle::cuda {

// Of magnitudes up to 2^22, ties to even: as rintf(), which takes a unit a quarter as fast.
__device__ __forceinline__ float nearest_integer(float x) {
  constexpr float kUnitSteps = 0x1.8p23F;  // numbers from here to 2^24 lie 1 apart
  return __fsub_rn(__fadd_rn(x, kUnitSteps), kUnitSteps);
}

// Numbers of the codes of two values over their scale, times `factor`, a power of two: in bf16, or E4M3's in f16 as
// they are. NaN stays NaN.
template <InputKind kInput, bool kHalves = false>
__device__ __forceinline__ std::uint32_t numbers_of(float first, float second, float factor) {
  static_assert(kInput != InputKind::int8_tensor, "values may lie beyond the codes");
  if constexpr (kInput == InputKind::int8_token)
    return pack_bf16(nearest_integer(first) * factor, nearest_integer(second) * factor);
  std::uint32_t halves = 0;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(pack_e4m3x2(first, second))));
  if constexpr (kHalves) return halves;
  const float2 two = __half22float2(*reinterpret_cast<const __half2*>(&halves));
  return pack_bf16(two.x * factor, two.y * factor);
}

// By a warp: `kCols` f32 to numbers of codes in bf16, and their scales. kPassed: they come from other blocks, word by
// word.
template <class Plan, int kCols, bool kPassed>
__device__ __forceinline__ void quantize_columns(const float* from, uint4* to, std::uint32_t* scales) {
  using Rows = typename Plan::Rows;
  constexpr std::uint32_t kOnes = 0xFFFFFFFFU;
  constexpr int kSteps = (kCols / 8 + 31) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto* const words = reinterpret_cast<const uint4*>(from);
  const auto is_mine = [&](int step) { return kCols % 256 == 0 || step * 32 + lane < kCols / 8; };
  uint4 x[kSteps][2];
  bool missing = true;
  while (missing) {
    missing = false;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint4* const at = words + 2 * (step * 32 + lane) + i;
        x[step][i] = !is_mine(step) ? make_uint4(0, 0, 0, 0) : kPassed ? load_whole(at) : __ldg(at);
        missing |= kPassed && x[step][i].w == kOnes;
      }
    }
    missing = __any_sync(kOnes, missing);
  }
  const auto value = [&](int step, int i) {
    const uint4& four = x[step][i / 4];
    return __uint_as_float(i % 4 == 0 ? four.x : i % 4 == 1 ? four.y : i % 4 == 2 ? four.z : four.w);
  };
  float most[kSteps];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    most[step] = 0.0F;
#pragma unroll
    for (int i = 0; i < 8; ++i) most[step] = fmaxf(most[step], fabsf(value(step, i)));
    if (!Rows::kGroups && step > 0) most[0] = fmaxf(most[0], most[step]);
  }
  constexpr int kMaxima = Rows::kGroups ? kSteps : 1;
#pragma unroll
  for (int i = 0; i < kMaxima; ++i) {
#pragma unroll
    for (int step = Rows::kGroups ? 8 : 16; step > 0; step /= 2)
      most[i] = fmaxf(most[i], __shfl_xor_sync(kOnes, most[i], step));
  }
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const InputScale scale = input_scale(Plan::kInput, most[Rows::kGroups ? step : 0], 1.0F);
    const float inverse = 1.0F / scale.divisor;
    if (!is_mine(step)) continue;
    const int word = step * 32 + lane;
    if (Rows::kGroups ? word % 16 == 0 : word == 0) store_whole_4(scales + word / 16, __float_as_uint(scale.scale));
    std::uint32_t numbers[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      numbers[i] =
          numbers_of<Plan::kInput>(value(step, 2 * i) * inverse, value(step, 2 * i + 1) * inverse, Plan::kInputFactor);
    }
    store_whole(to + word, make_uint4(numbers[0], numbers[1], numbers[2], numbers[3]));
  }
}

// A row, its scales behind it. Under scales of 128 columns each a long row is quantized part by part, for registers.
template <class Plan, int kCols, bool kPassed>
__device__ __forceinline__ void quantize_row(const float* from, uint4* to) {
  constexpr bool kParts = Plan::Rows::kGroups && Plan::kSaveRegisters && kCols % 1024 == 0;
  constexpr int kPart = kParts ? 1024 : kCols;
  auto* const scales = reinterpret_cast<std::uint32_t*>(to + kCols / 8);
#pragma unroll 1
  for (int at = 0; at < kCols; at += kPart)
    quantize_columns<Plan, kPart, kPassed>(from + at, to + at / 8, scales + at / 128);
}

}  // namespace moracle::cuda
