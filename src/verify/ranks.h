// Holds what the ranks of a cut compute of an experts layer against the whole of it, with the reference kernel.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/thread_pool.h"
#include "model/load/parallel_cut.h"
#include "oracle/problem.h"
#include "scheme/canonical.h"

namespace moracle {

struct RanksVerdict {
  double relative = 0;    // of the sum of all ranks, as LayerDifference::relative
  double bound = 0;       // on it: 1e-6, more where activations are rounded by the scale of a rank's share
  bool same_bits = true;  // of each rank with whole experts, and of the whole whose other experts are left out
  [[nodiscard]] bool ok() const { return same_bits && relative <= bound; }
};

// Runs all tp x ep ranks one after the other in this process; each holds experts / ep experts, and of each of these
// intermediate / tp columns. The layout is one that divides both (model/load/parallel_cut.h). Errors: those of packing,
// "memory.allocate".
Result<RanksVerdict> compare_ranks(const CanonicalExperts& whole, const Problem& problem, const RankLayout& ranks,
                                   std::int64_t tokens, std::uint64_t seed, ThreadPool& pool);

}  // namespace moracle
