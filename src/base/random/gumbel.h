// Standard Gumbel noise as a function of seed and index: the index of the largest value[i] / temperature + gumbel(seed,
// i) is a draw from the softmax of the values.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/random/mix64.h"

namespace moracle {

namespace gumbel_detail {
// 53 uniform bits m: u = (m + 1/2) / 2^53.
[[nodiscard]] constexpr std::uint64_t uniform_bits(std::uint64_t seed, std::uint64_t index) {
  return mix64(seed + index * kGoldenRatio64) >> 11U;
}
}  // namespace gumbel_detail

[[nodiscard]] inline double gumbel(std::uint64_t seed, std::uint64_t index) {
  const double u = (static_cast<double>(gumbel_detail::uniform_bits(seed, index)) + 0.5) * 0x1p-53;
  return -std::log(-std::log(u));
}

// At least gumbel(seed, index), at the cost of a bit scan: -log(-log u) <= -log(1 - u), and 1 - u is at least the
// highest bit of the complement.
[[nodiscard]] inline double gumbel_bound(std::uint64_t seed, std::uint64_t index) {
  constexpr std::uint64_t kAll = (std::uint64_t{1} << 53U) - 1;
  constexpr double kLn2 = 0.693147180559945309;
  const auto width = static_cast<int>(std::bit_width(kAll - gumbel_detail::uniform_bits(seed, index)));
  return (54 - width) * kLn2;
}

}  // namespace moracle
