// base/random/gumbel.h on the device: the same bits of the draw, logarithms within a unit of the last place of double.
#pragma once

#include <cstdint>

#include "base/random/gumbel.h"

namespace moracle::cuda {

__device__ inline double gumbel_noise(std::uint64_t seed, std::uint64_t index) {
  const double u = (static_cast<double>(gumbel_detail::uniform_bits(seed, index)) + 0.5) * 0x1p-53;
  return -log(-log(u));
}

// At least gumbel_noise(seed, index), at the cost of a bit scan.
__device__ inline double noise_bound(std::uint64_t seed, std::uint64_t index) {
  constexpr std::uint64_t kAll = (std::uint64_t{1} << 53U) - 1;
  constexpr double kLn2 = 0.693147180559945309;
  const int width = 64 - __clzll(static_cast<long long>(kAll - gumbel_detail::uniform_bits(seed, index)));
  return (54 - width) * kLn2;
}

}  // namespace moracle::cuda
