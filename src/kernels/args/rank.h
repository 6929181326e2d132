#pragma once

#include <cstdint>

#include "kernels/args/plain.h"

namespace moracle {

// One number among others.
struct RankedOutput {
  float value = 0.0F;
  std::int64_t row = 0;  // of a linear's outputs

  [[nodiscard]] constexpr bool before(const RankedOutput& other) const {
    return value > other.value || (value == other.value && row < other.row);
  }
};
static_assert(kPlain<RankedOutput>);

// The k numbers of each row that rank highest, best first, of equal ones the lower column first. With seeds a number
// ranks by value / temperature + gumbel(seeds[row], column), so that the first is a draw from the softmax of the row;
// the host alone has them.
struct RankArgs {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t k = 1;  // no more than cols
  const float* x = nullptr;
  const std::uint8_t* bad = nullptr;     // [rows] or null: nothing is written of such a row, since NaN has no rank
  const std::uint64_t* seeds = nullptr;  // [rows] or null
  double temperature = 1.0;              // with seeds
  RankedOutput* out = nullptr;           // [rows, k]
};
static_assert(kPlain<RankArgs>);

}  // namespace moracle
