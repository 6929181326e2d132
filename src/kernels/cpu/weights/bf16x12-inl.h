// What packers of bf16x12 share (bf16x12.h): the exponents of a panel.
#pragma once

#include "kernels/cpu/weights/panel.h"

namespace moracle::cpu {

constexpr std::uint32_t kBf16x12Pairs = 7;  // of exponents, in a row; the eighth code is a zero

// The first of the pairs of exponents that hold most of a panel of plain numbers.
template <class V>
std::uint32_t bf16x12_base(const std::uint16_t* weights, std::int64_t steps) {
  constexpr std::uint32_t kLastBase = 120;
  // One weight in so many is looked at; prime to the lines of a step.
  constexpr std::int64_t kSampling = 29;
  std::uint32_t seen[128] = {};
  for (std::int64_t i = 0; i < steps * kStepColumns * kPanelRows; i += kSampling) ++seen[weights[i] >> 8U & 0x7FU];
  std::uint32_t held = 0;
  for (std::uint32_t pair = 1; pair <= kBf16x12Pairs; ++pair) held += seen[pair];
  std::uint32_t base = 1;
  std::uint32_t most = held;
  for (std::uint32_t first = 2; first <= kLastBase; ++first) {
    held += seen[first + kBf16x12Pairs - 1] - seen[first - 1];
    if (held > most) {
      most = held;
      base = first;
    }
  }
  return base;
}

// What puts the numbers of codes that begin at `base` back in their place: 4^(base - kBf16x12Pair).
template <class V>
float bf16x12_factor(std::uint32_t base) {
  const int power = 2 * (static_cast<int>(base) - kBf16x12Pair);
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(127 + power) << 23U);
}

}  // namespace moracle::cpu
