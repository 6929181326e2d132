// What both attentions share. Softmax is computed block by block with a running maximum (Milakov and Gimelshein, arXiv
// 1805.02867), so that memory does not grow with the context: over sections of kSectionTokens positions, whose results
// are merged in their order. Sections of one query may be computed by several threads. Each query's result depends on
// its own sequence alone and sums in one fixed order: the same bits whatever else is in the batch, however a prompt was
// cut, and for any number of threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/memory.h"
#include "kernels/cpu/ops/cpu_ops.h"

namespace moracle::cpu {

// Positions of one section: a task that outweighs handing it out and merging it. Part of what results are made of.
inline constexpr std::int64_t kSectionTokens = 512;
inline constexpr std::int64_t kSectionBlocks = kSectionTokens / kKvBlock;

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// What scores of the query at this position are multiplied by.
inline float factor_at(const PositionScale& scale, std::int64_t position) {
  if (scale.beta == 0.0F) return 1.0F;
  const float periods = std::floor((static_cast<float>(position) + scale.shift) / scale.period);
  return 1.0F + scale.beta * std::log(1.0F + periods);
}

// Adds one section's sum of values, not yet divided by the sum of exponentials, to what was summed before it; `added`
// is changed, too.
inline void merge_sums(const VectorOps& ops, std::int64_t size, float* added, float added_maximum, float added_sum,
                       float* out, float& maximum, float& sum) {
  const float both = std::max(maximum, added_maximum);
  const float kept = std::exp(maximum - both);
  const float taken = std::exp(added_maximum - both);
  if (kept != 1.0F) ops.scale(kept, out, size);
  if (taken != 1.0F) ops.scale(taken, added, size);
  ops.add(added, out, size);
  maximum = both;
  sum = sum * kept + added_sum * taken;
}

// Bytes that `lay_out` takes from an arena.
template <class LayOut>
std::size_t bytes_taken(const LayOut& lay_out) {
  BumpArena counting = BumpArena::counting();
  lay_out(counting);
  return counting.used() + BumpArena::kAlignment;
}

}  // namespace moracle::cpu
