// Operations on numbers or rows, each for itself.
#pragma once

#include <cstdint>

#include "kernels/args/plain.h"
#include "scheme/glu.h"

namespace moracle {

struct AddArgs {
  std::int64_t count;
  const float* x;
  float* sum;  // sum += x
};
static_assert(kPlain<AddArgs>);

struct ScaleArgs {
  std::int64_t count = 0;
  float factor = 1.0F;
  const float* by = nullptr;  // one number more, or null
  float* x = nullptr;         // x *= factor, or factor * by
};
static_assert(kPlain<ScaleArgs>);

// x = cap tanh(x / cap)
struct SoftcapArgs {
  std::int64_t count = 0;
  float cap = 1.0F;
  float* x = nullptr;
};
static_assert(kPlain<SoftcapArgs>);

// out = weight * x, a weight for each row, which becomes 1.
struct WeighArgs {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const float* x = nullptr;
  float* weights = nullptr;  // [rows]
  float* out = nullptr;
};
static_assert(kPlain<WeighArgs>);

// sum += sigmoid(gate) x, a gate for each row. Overwrites x.
struct AddGatedArgs {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const float* gate = nullptr;  // [rows]
  float* x = nullptr;
  float* sum = nullptr;
};
static_assert(kPlain<AddGatedArgs>);

// out = act(gate) * up
struct GatedArgs {
  std::int64_t count = 0;
  ActivationSpec activation{};
  const float* gate = nullptr;
  const float* up = nullptr;
  float* out = nullptr;
};
static_assert(kPlain<GatedArgs>);

// to[i] = from[index[i]], rows of `cols` numbers.
struct GatherArgs {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const std::int32_t* index = nullptr;
  const float* from = nullptr;
  float* to = nullptr;
};
static_assert(kPlain<GatherArgs>);

// bad[row] = 1 where a number of the row is NaN or infinite, else 0.
struct FiniteArgs {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const float* x = nullptr;
  std::uint8_t* bad = nullptr;
};
static_assert(kPlain<FiniteArgs>);

}  // namespace moracle
