// Splits of a sequence, and how the last block of those that share a row merges them.
#pragma once

#include <cstdint>

#include "kernels/cuda/layout.h"

namespace moracle::cuda {

// The sections that a token sees, and their splits.
struct Sections {
  std::int64_t first;
  std::int64_t end;
  int splits;
};
__device__ inline Sections sections_of(std::int64_t position, std::int64_t window, std::int64_t most_splits) {
  const std::int64_t oldest = window == 0 ? 0 : max(position - window + 1, std::int64_t{0});
  const std::int64_t first = oldest / kSectionPositions;
  const std::int64_t end = position / kSectionPositions + 1;
  return {first, end, static_cast<int>(min(end - first, most_splits))};
}

// What the splits of some rows leave in the workspace.
struct SplitSums {
  float* sums;   // [splits, width] of the first row
  float* stats;  // [splits, 2]
  int splits;    // that a row has room for
  int width;

  [[nodiscard]] __device__ float* sums_of(int row, int split) const {
    return sums + (static_cast<std::int64_t>(row) * splits + split) * width;
  }
  [[nodiscard]] __device__ float* stats_of(int row, int split) const {
    return stats + (static_cast<std::int64_t>(row) * splits + split) * 2;
  }
};

// Of rows from `row` on.
__device__ inline SplitSums split_sums(const SplitWork& work, std::byte* workspace, std::int64_t row, int splits,
                                       std::int64_t width) {
  return {reinterpret_cast<float*>(workspace + work.sums) + row * splits * width,
          reinterpret_cast<float*>(workspace + work.stats) + row * splits * 2, splits, static_cast<int>(width)};
}

// Whether this block is the last of `blocks` that come here. What they wrote to the workspace before is then visible.
__device__ inline bool is_last(std::int32_t* counter, int blocks) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(counter, 1) == blocks - 1;
  __syncthreads();
  __threadfence();
  return last;
}

struct Merged {
  float value;
  float maximum;
  float sum;
};
// One number of a row, over its splits in their order.
__device__ inline Merged merge_splits(const SplitSums& parts, int row, int column, int splits) {
  Merged merged{0.0F, -INFINITY, 0.0F};
  for (int i = 0; i < splits; ++i) merged.maximum = fmaxf(merged.maximum, __ldcg(parts.stats_of(row, i)));
#pragma unroll 4
  for (int i = 0; i < splits; ++i) {
    const float factor = exp2f(__ldcg(parts.stats_of(row, i)) - merged.maximum);
    merged.sum = fmaf(__ldcg(parts.stats_of(row, i) + 1), factor, merged.sum);
    merged.value = fmaf(__ldcg(parts.sums_of(row, i) + column), factor, merged.value);
  }
  return merged;
}

// Blocks that share the splits of a row tile: enough for every multiprocessor to have two.
inline int blocks_for_splits(std::int64_t tiles, std::int64_t splits, int multiprocessors) {
  const std::int64_t wanted = (2 * multiprocessors + tiles - 1) / tiles;
  return static_cast<int>(wanted < 1 ? 1 : wanted > splits ? splits : wanted);
}

}  // namespace moracle::cuda
