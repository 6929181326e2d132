// base/random/gumbel.h on the device: the same bits of the draw, logarithms within a unit of the last place of double.
#pragma once

#include <cstdint>

#include "base/random/gumbel.h"

namespace moracle::cuda {

__device__ inline double gumbel_noise(std::uint64_t seed, std::uint64_t index) {
  const double u = (static_cast<double>(gumbel_detail::uniform_bits(seed, index)) + 0.5) * 0x1p-53;
  return -log(-log(u));
}

// Noise lies between these, at the cost of a bit scan. With v the highest bit of 1 - u, as the host's bound has it:
// -log(-log u) <= -log(1 - u) <= -log v, and for u >= 1/2, -log u <= 2 log(2) (1 - u) < 4 log(2) v.
struct NoiseBounds {
  double least;
  double most;
};
__device__ inline NoiseBounds noise_bounds(std::uint64_t seed, std::uint64_t index) {
  constexpr std::uint64_t kAll = (std::uint64_t{1} << 53U) - 1;
  constexpr double kLn2 = 0.693147180559945309;
  constexpr double kLog4Ln2 = 1.019781441;  // rounded up
  const int width = 64 - __clzll(static_cast<long long>(kAll - gumbel_detail::uniform_bits(seed, index)));
  const double most = (54 - width) * kLn2;
  return {width == 53 ? -INFINITY : most - kLog4Ln2, most};
}

}  // namespace moracle::cuda
