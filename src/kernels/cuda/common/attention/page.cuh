// 16 query rows against the 64 positions of a block, by one warp.
//
// Lane l has rows l / 4 and l / 4 + 8, and is part l % 4 of each. Both products take 16 bytes of a row at a time:
// column c of a tile of keys is position 8 (c / 2) + 2 tile + c % 2 of 32, so that a part's scores are those of 8
// positions in a row, which are the inputs that the second product wants. Softmax is that of Milakov and Gimelshein,
// arXiv 1805.02867, in powers of two.
#pragma once

#include <cstdint>

#include "kernels/args/state.h"
#include "kernels/cuda/common/layout.h"
#include "kernels/cuda/common/mma.cuh"

namespace moracle::cuda {

inline constexpr int kPage = static_cast<int>(kKvBlock);
inline constexpr float kLog2E = 1.4426950408889634F;

// What a warp's rows have summed.
template <int kDims>
struct RowSums {
  float out[kDims / 8][4];  // of dims 8 t + 2 part + {0, 1}, of both rows; not yet divided by the sum
  float maximum[2];         // of scores, in powers of two
  float sum[2];             // of this part's exponentials

  __device__ void clear() {
#pragma unroll
    for (auto& tile : out) tile[0] = tile[1] = tile[2] = tile[3] = 0.0F;
    maximum[0] = maximum[1] = -INFINITY;
    sum[0] = sum[1] = 0.0F;
  }
};

// Rows of queries or of keys in shared memory, in chunks of 16 bytes. Chunks of odd rows change places with those four
// further, unless rows are an odd multiple of 64 bytes apart: then the banks differ anyway.
struct Chunks {
  const uint4* rows;
  int row_chunks;
  int flip;  // of odd rows: 4 or 0

  [[nodiscard]] __device__ const uint4& at(int row, int chunk) const {
    return rows[row * row_chunks + (chunk ^ (row % 2 != 0 ? flip : 0))];
  }
};
__device__ inline int flip_of(int row_chunks) {
  return row_chunks % 8 == 0 ? 4 : 0;
}
// A place for each chunk, as Chunks finds it.
__device__ inline int chunk_place(int row, int chunk, int row_chunks) {
  return row * row_chunks + (chunk ^ (row % 2 != 0 ? flip_of(row_chunks) : 0));
}

// Values in shared memory: rows of 32 positions, for each half of a block.
inline constexpr int kHalf = kPage / 2;
inline constexpr int kHalfChunks = kHalf / 8;  // of a row
struct Values {
  const uint4* halves;
  int rows;  // of a half

  [[nodiscard]] __device__ const uint4& at(int half, int row, int part) const {
    return halves[(half * rows + row) * kHalfChunks + part];
  }
};

// Positions of the block that a row sees: [begin, end).
struct Visible {
  int begin;
  int end;
};
__device__ inline Visible visible_in(std::int64_t base, std::int64_t position, std::int64_t window) {
  const std::int64_t end = min(max(position + 1 - base, std::int64_t{0}), kKvBlock);
  const std::int64_t begin = window == 0 ? 0 : min(max(position - window + 1 - base, std::int64_t{0}), end);
  return {static_cast<int>(begin), static_cast<int>(end)};
}

// Two numbers of which `stored` may be read: zeros take the place of the others, which may be anything.
__device__ inline std::uint32_t only_stored(std::uint32_t pair, int stored) {
  return stored >= 2 ? pair : stored == 1 ? pair & 0xFFFFU : 0U;
}
__device__ inline uint4 only_stored(const uint4& values, int stored) {
  return {only_stored(values.x, stored), only_stored(values.y, stored - 2), only_stored(values.z, stored - 4),
          only_stored(values.w, stored - 6)};
}

// 2^x, within 2 units of the last place; 0 for numbers below the normal ones.
__device__ __forceinline__ float power_of_two(float x) {
  float power = 0.0F;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

// scores[tile]: of 8 positions, of which 4 tiles are 32 in a row.
template <int kTiles>
__device__ __forceinline__ void score_keys(const Chunks& queries, const Chunks& keys, float (&scores)[kTiles][4]) {
  const int row = static_cast<int>(threadIdx.x) % 32 / 4;
  const int part = static_cast<int>(threadIdx.x) % 4;
  const int first_key = 8 * (row / 2) + row % 2;
#pragma unroll
  for (auto& tile : scores) tile[0] = tile[1] = tile[2] = tile[3] = 0.0F;
#pragma unroll 1
  for (int group = 0; group < keys.row_chunks / 4; ++group) {
    uint4 key[kTiles];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
      key[tile] = keys.at(32 * (tile / 4) + first_key + 2 * (tile % 4), 4 * group + part);
    const uint4 upper = queries.at(row, 4 * group + part);
    const uint4 lower = queries.at(row + 8, 4 * group + part);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      multiply_bf16(scores[tile], upper.x, lower.x, upper.y, lower.y, key[tile].x, key[tile].y);
      multiply_bf16(scores[tile], upper.z, lower.z, upper.w, lower.w, key[tile].z, key[tile].w);
    }
  }
}

// Takes out the scores of positions that a row does not see.
template <int kTiles>
__device__ __forceinline__ void hide_scores(float (&scores)[kTiles][4], const Visible (&visible)[2]) {
  const int part = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = 32 * (tile / 4) + 8 * part + 2 * (tile % 4) + i % 2;
      if (key < visible[i / 2].begin || key >= visible[i / 2].end) scores[tile][i] = -INFINITY;
    }
  }
}

// Scores become exponentials; what was summed before is brought to the new maximum. `scale`: of scores, to powers of
// two.
template <int kDims, int kTiles>
__device__ __forceinline__ void exponentiate(float (&scores)[kTiles][4], float scale, RowSums<kDims>& sums) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float most = -INFINITY;
#pragma unroll
    for (const auto& tile : scores) most = fmaxf(most, fmaxf(tile[2 * half], tile[2 * half + 1]));
    most = fmaxf(most, __shfl_xor_sync(~0U, most, 1));
    most = fmaxf(most, __shfl_xor_sync(~0U, most, 2));
    const float maximum = fmaxf(sums.maximum[half], most * scale);
    const float shift = maximum == -INFINITY ? 0.0F : maximum;
    const float factor = power_of_two(sums.maximum[half] - shift);
    float sum = 0.0F;
#pragma unroll
    for (auto& tile : scores) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        tile[i] = power_of_two(fmaf(tile[i], scale, -shift));
        sum += tile[i];
      }
    }
    sums.maximum[half] = maximum;
    sums.sum[half] = fmaf(sums.sum[half], factor, sum);
#pragma unroll
    for (auto& tile : sums.out) {
      tile[2 * half] *= factor;
      tile[2 * half + 1] *= factor;
    }
  }
}

// Adds values by their exponentials. `kEdge`: `stored` of the positions hold something.
template <int kDims, bool kEdge, int kTiles>
__device__ __forceinline__ void add_values(const float (&exponentials)[kTiles][4], const Values& values, int dims,
                                           int stored, RowSums<kDims>& sums) {
  const int row = static_cast<int>(threadIdx.x) % 32 / 4;
  const int part = static_cast<int>(threadIdx.x) % 4;
  constexpr int kGroups = kTiles / 4;  // of 32 positions
  constexpr int kAtOnce = 4;           // tiles of 8 dims; key_row is a multiple of them
  std::uint32_t weights[kTiles][2];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    weights[tile][0] = pack_bf16(exponentials[tile][0], exponentials[tile][1]);
    weights[tile][1] = pack_bf16(exponentials[tile][2], exponentials[tile][3]);
  }
#pragma unroll
  for (int first = 0; first < kDims / 8; first += kAtOnce) {
    if (8 * first >= dims) break;
    // Values beyond the last dims are anything, and nobody reads their sums.
    uint4 value[kAtOnce][kGroups];
#pragma unroll
    for (int t = 0; t < kAtOnce; ++t) {
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        value[t][group] = values.at(group, 8 * (first + t) + row, part);
        if constexpr (kEdge) value[t][group] = only_stored(value[t][group], stored - 32 * group - 8 * part);
      }
    }
#pragma unroll
    for (int t = 0; t < kAtOnce; ++t) {
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        const auto* const w = &weights[4 * group];
        multiply_bf16(sums.out[first + t], w[0][0], w[0][1], w[1][0], w[1][1], value[t][group].x, value[t][group].y);
        multiply_bf16(sums.out[first + t], w[2][0], w[2][1], w[3][0], w[3][1], value[t][group].z, value[t][group].w);
      }
    }
  }
}

// The sums of all parts of a row.
__device__ inline float sum_of_parts(float sum) {
  sum += __shfl_xor_sync(~0U, sum, 1);
  return sum + __shfl_xor_sync(~0U, sum, 2);
}

// A share of a block.
struct Share {
  const uint4* keys;
  const uint4* values;
};
__device__ inline Share share_of(const AttentionArgs& args, std::uint32_t block, std::int64_t kv_head) {
  const auto* const share = reinterpret_cast<const std::uint16_t*>(args.blocks.block(block));
  const std::int64_t head = kKvBlock * key_row(args.shape);
  return {reinterpret_cast<const uint4*>(share + kv_head * head),
          reinterpret_cast<const uint4*>(share + (args.shape.kv_heads + kv_head) * head)};
}

// What a row's softmax has of its sink, which takes part and has no value: the factor of the row's sum of values.
__device__ inline float row_factor(const AttentionArgs& args, std::int64_t head, float maximum, float sum) {
  if (args.sinks == nullptr) return 1.0F / sum;
  const float sink = args.sinks[head] * kLog2E;
  const float most = fmaxf(maximum, sink);
  const float factor = power_of_two(maximum - most);
  return factor / fmaf(sum, factor, power_of_two(sink - most));
}

__device__ inline float gate_sigmoid(float x) {
  return 1.0F / (1.0F + expf(-x));
}
// The gates of one number of the output.
__device__ inline float gated_output(const AttentionArgs& args, std::int64_t token, std::int64_t head, std::int64_t dim,
                                     float value) {
  const AttentionShape& shape = args.shape;
  if (shape.element_gate)
    value *= gate_sigmoid(args.q[token * shape.q_width() + (2 * head + 1) * shape.head_dim + dim]);
  if (args.head_gate != nullptr) value *= gate_sigmoid(args.head_gate[token * shape.heads + head]);
  return value;
}

// Numbers from one head's query to the next one's.
__device__ inline std::int64_t query_stride(const AttentionShape& shape) {
  return shape.element_gate ? 2 * shape.head_dim : shape.head_dim;
}

// A chunk of 8 numbers of a query in bf16; zeros beyond head_dim, a multiple of 16.
__device__ inline uint4 query_chunk(const AttentionArgs& args, std::int64_t token, std::int64_t head, int chunk) {
  if (8 * chunk >= args.shape.head_dim) return {};
  const float* const from = args.q + token * args.shape.q_width() + head * query_stride(args.shape) + 8 * chunk;
  return {pack_bf16(from[0], from[1]), pack_bf16(from[2], from[3]), pack_bf16(from[4], from[5]),
          pack_bf16(from[6], from[7])};
}

}  // namespace moracle::cuda
