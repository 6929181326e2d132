// Products of f32 numbers, a matrix for each head: out[t, h, n] = sum over k of x[t, h, k] weights[h, k, n].
#pragma once

#include <cstdint>

namespace moracle::cuda {

inline constexpr int kHeadThreads = 128;  // of a block, a column each
inline constexpr int kHeadTokens = 8;
inline constexpr int kHeadDepth = 128;  // of x in shared memory at a time

struct HeadRows {
  const float* at;
  std::int64_t token_stride;
  std::int64_t head_stride;
};

// Block (column tile, head, token tile); write(token in the tile's call, column, sum) for columns below `columns`.
template <class Write>
__device__ void multiply_head(const HeadRows& x, const float* weights, int depth, int columns, std::int64_t tokens,
                              const Write& write) {
  __shared__ float inputs[kHeadTokens][kHeadDepth];
  const std::int64_t head = blockIdx.y;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.z) * kHeadTokens;
  const int column = static_cast<int>(blockIdx.x) * kHeadThreads + static_cast<int>(threadIdx.x);
  const float* const own = weights + head * depth * columns + min(column, columns - 1);
  float sums[kHeadTokens] = {};
  for (int from = 0; from < depth; from += kHeadDepth) {
    const int width = min(kHeadDepth, depth - from);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kHeadTokens * kHeadDepth; i += kHeadThreads) {
      const std::int64_t token = first + i / kHeadDepth;
      const int k = i % kHeadDepth;
      inputs[i / kHeadDepth][k] =
          token < tokens && k < width ? x.at[token * x.token_stride + head * x.head_stride + from + k] : 0.0F;
    }
    __syncthreads();
#pragma unroll 8
    for (int k = 0; k < width; ++k) {
      const float weight = own[static_cast<std::int64_t>(from + k) * columns];
#pragma unroll
      for (int t = 0; t < kHeadTokens; ++t) sums[t] = fmaf(inputs[t][k], weight, sums[t]);
    }
  }
  if (column >= columns) return;
#pragma unroll
  for (int t = 0; t < kHeadTokens; ++t) {
    if (first + t < tokens) write(first + t, column, sums[t]);
  }
}

}  // namespace moracle::cuda
