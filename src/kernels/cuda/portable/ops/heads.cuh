// Products of f32 numbers, a matrix for each head: out[t, h, n] = sum over k of x[t, h, k] weights[h, k, n].
#pragma once

#include <cstdint>

namespace moracle::cuda {

inline constexpr int kHeadWarps = 8;  // of a block: each sums an eighth of a tile's depth
inline constexpr int kHeadThreads = 32 * kHeadWarps;
inline constexpr int kHeadColumns = 32;
inline constexpr int kHeadTokens = 8;
inline constexpr int kHeadDepth = 512;  // of x in shared memory at a time
static_assert(kHeadThreads == kHeadTokens * kHeadColumns);

struct HeadRows {
  const float* at;
  std::int64_t token_stride;
  std::int64_t head_stride;
};

// Block (column tile, head, token tile); write(token, column, sum) by one thread for each of its sums.
template <class Write>
__device__ void multiply_head(const HeadRows& x, const float* weights, int depth, int columns, std::int64_t tokens,
                              const Write& write) {
  __shared__ float inputs[kHeadDepth][kHeadTokens];
  __shared__ float parts[kHeadWarps][kHeadTokens][kHeadColumns];
  const std::int64_t head = blockIdx.y;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.z) * kHeadTokens;
  const int warp = static_cast<int>(threadIdx.x) / kHeadColumns;
  const int lane = static_cast<int>(threadIdx.x) % kHeadColumns;
  const int column = static_cast<int>(blockIdx.x) * kHeadColumns + lane;
  const float* const own = weights + head * depth * columns + min(column, columns - 1);
  float sums[kHeadTokens] = {};
  for (int from = 0; from < depth; from += kHeadDepth) {
    const int width = min(kHeadDepth, depth - from);
    __syncthreads();
    for (int t = 0; t < kHeadTokens; ++t) {
      const std::int64_t token = min(first + t, tokens - 1);
      for (int k = static_cast<int>(threadIdx.x); k < width; k += kHeadThreads)
        inputs[k][t] = x.at[token * x.token_stride + head * x.head_stride + from + k];
    }
    __syncthreads();
#pragma unroll 16
    for (int k = warp; k < width; k += kHeadWarps) {
      const float weight = own[static_cast<std::int64_t>(from + k) * columns];
#pragma unroll
      for (int t = 0; t < kHeadTokens; ++t) sums[t] = fmaf(inputs[k][t], weight, sums[t]);
    }
  }
#pragma unroll
  for (int t = 0; t < kHeadTokens; ++t) parts[warp][t][lane] = sums[t];
  __syncthreads();
  float sum = 0.0F;
  for (int i = 0; i < kHeadWarps; ++i) sum += parts[i][warp][lane];
  if (column < columns && first + warp < tokens) write(first + warp, column, sum);
}

}  // namespace moracle::cuda
