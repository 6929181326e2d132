// What one rank of several holds of a layer's experts.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "scheme/canonical.h"

namespace moracle {

// The spec of `rows` x `cols` of a matrix: groups and blocks that a cut divides become smaller ones of the same scale.
// Its group index is that of the whole.
[[nodiscard]] MatrixSpec spec_of_share(const MatrixSpec& whole, std::int64_t rows, std::int64_t cols);

struct ExpertsSlice {
  std::span<const std::int64_t> experts{};  // numbers in the layer
  std::int64_t begin = 0;                   // of the intermediate width
  std::int64_t width = 0;
};

// Rows of gate and up, columns of down; lazy as `whole` is. The bias of down stays with the rank that begins at 0, and
// is zero with the others, so that outputs of all ranks add up. The cut is one that a plan allows
// (model/load/parallel_cut.h).
[[nodiscard]] CanonicalExperts slice_experts(const CanonicalExperts& whole, const ExpertsSlice& slice);

}  // namespace moracle
