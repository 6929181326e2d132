#pragma once

#include <cstdint>

#include "kernels/args/plain.h"

namespace moracle {

// Of queries by their position: 1 + beta log(1 + floor((position + shift) / period)).
struct PositionScale {
  float beta = 0.0F;  // 0: none
  float period = 1.0F;
  float shift = 0.0F;
};

// cos and sin of every token's position, [tokens, half], times `scale`.
struct RopeTableArgs {
  std::int64_t tokens = 0;
  std::int64_t half = 0;
  const std::int32_t* positions = nullptr;
  const float* inv_freq = nullptr;  // [half]
  float scale = 1.0F;
  float* cos = nullptr;
  float* sin = nullptr;
};
static_assert(kPlain<RopeTableArgs>);

// What it wrote. The first 2 * half numbers of a head are rotated.
struct RopeTable {
  const float* cos = nullptr;
  const float* sin = nullptr;
  std::int64_t half = 0;  // 0: no rope
};
static_assert(kPlain<RopeTable>);

}  // namespace moracle
