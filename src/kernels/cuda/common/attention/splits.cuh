// Splits of a sequence, and how the last block of those that share a row merges them.
#pragma once

#include <cstdint>

#include "kernels/cuda/common/layout.h"
#include "kernels/cuda/common/ops/block.cuh"

namespace moracle::cuda {

// The sections of `size` positions that a token sees, and their splits.
struct Sections {
  std::int64_t first;
  std::int64_t end;
  int splits;
};
__device__ inline Sections sections_of(std::int64_t position, std::int64_t window, std::int64_t size,
                                       std::int64_t most_splits) {
  const std::int64_t oldest = window == 0 ? 0 : max(position - window + 1, std::int64_t{0});
  const std::int64_t first = oldest / size;
  const std::int64_t end = position / size + 1;
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

// All numbers of `rows` rows, over their splits in their order, by kThreads threads: write(row, column, four numbers,
// maximum, sum). kRows, kMost: rows and splits at most.
template <int kThreads, int kRows, int kMost, class Write>
__device__ void merge_splits(const SplitSums& parts, int rows, int splits, const Write& write) {
  __shared__ float factors[kRows][kMost];
  __shared__ float maxima[kRows];
  __shared__ float sums[kRows];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int row = static_cast<int>(threadIdx.x) / 32; row < rows; row += kThreads / 32) {
    float maximum = -INFINITY;
    for (int i = lane; i < splits; i += 32) maximum = fmaxf(maximum, __ldcg(parts.stats_of(row, i)));
    for (int step = 16; step > 0; step /= 2) maximum = fmaxf(maximum, __shfl_xor_sync(~0U, maximum, step));
    float sum = 0.0F;
    for (int i = lane; i < splits; i += 32) {
      factors[row][i] = exp2f(__ldcg(parts.stats_of(row, i)) - maximum);
      sum = fmaf(__ldcg(parts.stats_of(row, i) + 1), factors[row][i], sum);
    }
    sum = warp_sum(sum);
    if (lane == 0) maxima[row] = maximum;
    if (lane == 0) sums[row] = sum;
  }
  __syncthreads();
  const int chunks = parts.width / 4;
  for (int i = static_cast<int>(threadIdx.x); i < rows * chunks; i += kThreads) {
    const int row = i / chunks;
    const int column = 4 * (i % chunks);
    float4 value{};
#pragma unroll 16
    for (int split = 0; split < splits; ++split) {
      const float4 part = __ldcg(reinterpret_cast<const float4*>(parts.sums_of(row, split) + column));
      const float factor = factors[row][split];
      value.x = fmaf(part.x, factor, value.x);
      value.y = fmaf(part.y, factor, value.y);
      value.z = fmaf(part.z, factor, value.z);
      value.w = fmaf(part.w, factor, value.w);
    }
    write(row, column, value, maxima[row], sums[row]);
  }
}

// Blocks that share the splits of each of `tiles` rows: a power of two, so that they have as many each, with which the
// grid has at most `most` blocks.
inline int blocks_for_splits(std::int64_t tiles, std::int64_t splits, std::int64_t most) {
  std::int64_t blocks = 1;
  while (2 * blocks <= splits && 2 * blocks * tiles <= most) blocks *= 2;
  return static_cast<int>(blocks);
}

}  // namespace moracle::cuda
