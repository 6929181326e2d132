// Products of f32 numbers, a matrix for each head: out[t, h, n] = sum over k of x[t, h, k] weights[h, k, n].
#pragma once

#include <cstdint>

#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/ops/tf32.cuh"

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

// Of any shape. Block (column tile, head, token tile); write(token, column, sum) by one thread for each of its sums.
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

// The same by products of TF32: both operands are rounded to 11 bits. Rows and matrices lie at multiples of 16 bytes.
// The bits of a sum are the same for any number of tokens.
struct HeadTile {
  static constexpr int kThreads = 128;  // four warps, of 32 tokens and 32 columns each
  static constexpr int kTokens = 64;
  static constexpr int kColumns = 64;
  static constexpr int kDepth = 32;  // of a stage
  static constexpr int kStages = 4;
  static constexpr int kInputPitch = kDepth + 4;  // so that the numbers of a fragment lie in banks of their own
  static constexpr int kWeightPitch = kColumns + 8;
  float inputs[kStages][kTokens][kInputPitch];
  float weights[kStages][kDepth][kWeightPitch];
};

// Copies columns [from, from + kDepth) of the tile's tokens, and the rows of weights that they meet; zeros beyond.
__device__ __forceinline__ void copy_head_stage(HeadTile& tile, int stage, const HeadRows& x, const float* weights,
                                                int depth, int columns, std::int64_t tokens, int from) {
  constexpr int kInputFours = HeadTile::kDepth / 4;
  constexpr int kWeightFours = HeadTile::kColumns / 4;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.z) * HeadTile::kTokens;
  const float* const rows = x.at + blockIdx.y * x.head_stride;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < HeadTile::kTokens * kInputFours; i += HeadTile::kThreads) {
    const int t = i / kInputFours;
    const int k = from + i % kInputFours * 4;
    const bool any = first + t < tokens && k < depth;
    copy_async(&tile.inputs[stage][t][i % kInputFours * 4], any ? rows + (first + t) * x.token_stride + k : rows, any);
  }
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < HeadTile::kDepth * kWeightFours; i += HeadTile::kThreads) {
    const int k = from + i / kWeightFours;
    const int column = static_cast<int>(blockIdx.x) * HeadTile::kColumns + i % kWeightFours * 4;
    const bool any = k < depth && column < columns;
    copy_async(&tile.weights[stage][i / kWeightFours][i % kWeightFours * 4],
               any ? weights + static_cast<std::int64_t>(k) * columns + column : weights, any);
  }
  commit_copies();
}

// Block (column tile, head, token tile); write(token, column, sum) by one thread for each of its sums.
template <class Write>
__device__ void multiply_head_tile(HeadTile& tile, const HeadRows& x, const float* weights, int depth, int columns,
                                   std::int64_t tokens, const Write& write) {
  const float* const own = weights + static_cast<std::int64_t>(blockIdx.y) * depth * columns;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row = warp / 2 * 32 + lane / 4;
  const int column = warp % 2 * 32 + lane / 4;
  const int part = lane % 4;
  float sums[2][4][4] = {};
#pragma unroll 1
  for (int stage = 0; stage + 1 < HeadTile::kStages; ++stage)
    copy_head_stage(tile, stage, x, own, depth, columns, tokens, stage * HeadTile::kDepth);
  int stage = 0;
#pragma unroll 1
  for (int from = 0; from < depth; from += HeadTile::kDepth) {
    wait_copies<HeadTile::kStages - 2>();
    __syncthreads();
    copy_head_stage(tile, (stage + HeadTile::kStages - 1) % HeadTile::kStages, x, own, depth, columns, tokens,
                    from + (HeadTile::kStages - 1) * HeadTile::kDepth);
#pragma unroll
    for (int k = part; k < HeadTile::kDepth; k += 8) {
      std::uint32_t a[2][4];
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[m][i] = round_tf32(tile.inputs[stage][row + 16 * m + i % 2 * 8][k + i / 2 * 4]);
      }
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const std::uint32_t b[2] = {round_tf32(tile.weights[stage][k][column + 8 * n]),
                                    round_tf32(tile.weights[stage][k + 4][column + 8 * n])};
        multiply_tf32(sums[0][n], a[0], b);
        multiply_tf32(sums[1][n], a[1], b);
      }
    }
    stage = (stage + 1) % HeadTile::kStages;
  }
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.z) * HeadTile::kTokens;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::int64_t token = first + row + 16 * m + i / 2 * 8;
        const int to = static_cast<int>(blockIdx.x) * HeadTile::kColumns + warp % 2 * 32 + 8 * n + 2 * part + i % 2;
        if (token < tokens && to < columns) write(token, to, sums[m][n][i]);
      }
    }
  }
}

}  // namespace moracle::cuda
