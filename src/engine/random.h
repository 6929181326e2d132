// Random numbers that are the same on every platform and compiler, unlike the distributions of <random>.
#pragma once

#include <cstdint>

namespace moracle {

// One step of SplitMix64: also a good hash of a counter.
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31U);
}

// SplitMix64: 64 bits of state, every seed good, passes BigCrush; enough for sampling and for synthetic weights.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    const std::uint64_t out = mix64(state_);
    state_ += 0x9E3779B97F4A7C15ULL;
    return out;
  }
  // Uniform in [0, 1), 53 bits.
  double uniform() { return static_cast<double>(next() >> 11U) * 0x1.0p-53; }
  // Uniform in [0, bound); bound > 0. The bias is below bound / 2^32.
  std::uint32_t below(std::uint32_t bound) {
    return static_cast<std::uint32_t>(((next() >> 32U) * static_cast<std::uint64_t>(bound)) >> 32U);
  }
  // Mean 0, variance 1: the sum of twelve uniforms less six (Irwin-Hall). Light tails, no libm, hence no platform
  // difference.
  float normal() {
    double sum = 0;
    for (int i = 0; i < 4; ++i) {
      const std::uint64_t bits = next();
      sum += static_cast<double>(bits & 0x1FFFFFU) + static_cast<double>((bits >> 21U) & 0x1FFFFFU) +
             static_cast<double>((bits >> 42U) & 0x1FFFFFU);
    }
    return static_cast<float>(sum * 0x1.0p-21 - 6.0);
  }

 private:
  std::uint64_t state_;
};

}  // namespace moracle
