// Random numbers that are the same on every platform and compiler, unlike the distributions of <random>.
#pragma once

#include <cstdint>

#include "base/random/mix64.h"

namespace moracle {

// SplitMix64: 64 bits of state, every seed good, passes BigCrush; enough for sampling and for synthetic weights.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    const std::uint64_t out = mix64(state_);
    state_ += kGoldenRatio64;
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
