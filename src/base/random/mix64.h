// One step of SplitMix64: a hash of a counter, the same on every machine.
#pragma once

#include <cstdint>

namespace moracle {

inline constexpr std::uint64_t kGoldenRatio64 = 0x9E3779B97F4A7C15ULL;

[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t x) {
  x += kGoldenRatio64;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31U);
}

}  // namespace moracle
