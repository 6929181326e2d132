// Rows of sequences of several tokens: queries of the heads that share a key head, 16 a warp.
#pragma once

#include "kernels/cuda/common/attention/page.cuh"

namespace moracle::cuda {

// Queries [first, first + queries) of a sequence.
struct Tile {
  std::int64_t span;  // -1: there is no such tile
  std::int64_t first;
  int queries;
};

// The tile with this number. Threads of a warp look through as many sequences at a time.
__device__ inline Tile find_tile(const AttentionArgs& args, std::int64_t number, int most_queries) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (std::int64_t from = 0; from < args.span_count; from += 32) {
    const std::int64_t count = from + lane < args.span_count ? args.spans[from + lane].count : 0;
    const std::int64_t tiles = count < 2 ? 0 : (count + most_queries - 1) / most_queries;
    std::int64_t end = tiles;
    for (int step = 1; step < 32; step *= 2) {
      const std::int64_t before = __shfl_up_sync(~0U, end, step);
      if (lane >= step) end += before;
    }
    const unsigned here = __ballot_sync(~0U, number < end);
    if (here != 0) {
      const int owner = __ffs(static_cast<int>(here)) - 1;
      const std::int64_t first = (number - __shfl_sync(~0U, end - tiles, owner)) * most_queries;
      const std::int64_t left = __shfl_sync(~0U, count, owner) - first;
      return {from + owner, first, static_cast<int>(min(left, static_cast<std::int64_t>(most_queries)))};
    }
    number -= __shfl_sync(~0U, end, 31);
  }
  return {-1, 0, 0};
}

// Tiles of all sequences at most: each has one that is not full.
inline unsigned query_tiles(const AttentionArgs& args, std::int64_t most_queries) {
  return static_cast<unsigned>(args.tokens / most_queries + lesser(args.span_count, args.tokens));
}

// This lane's two rows.
struct Rows {
  std::int64_t query[2];  // in the tile
  std::int64_t head[2];
  bool any[2];

  __device__ Rows(const Tile& tile, std::int64_t kv_head, int group) {
    for (int half = 0; half < 2; ++half) {
      const int row = static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * half;
      query[half] = row / group;
      head[half] = kv_head * group + row % group;
      any[half] = row < tile.queries * group;
    }
  }
};

template <int kDims>
__device__ void write_rows(const AttentionArgs& args, const Rows& rows, std::int64_t first_token,
                           const RowSums<kDims>& sums) {
  const int dims = static_cast<int>(args.shape.head_dim);
  const int part = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = sum_of_parts(sums.sum[half]);
    if (!rows.any[half]) continue;
    const std::int64_t token = first_token + rows.query[half];
    const std::int64_t head = rows.head[half];
    const float factor = row_factor(args, head, sums.maximum[half], sum);
    float* const out = args.out + (token * args.shape.heads + head) * dims;
#pragma unroll
    for (int tile = 0; tile < kDims / 8; ++tile) {
      if (8 * tile >= dims) break;
      const int dim = 8 * tile + 2 * part;
      *reinterpret_cast<float2*>(out + dim) = {
          gated_output(args, token, head, dim, sums.out[tile][2 * half] * factor),
          gated_output(args, token, head, dim + 1, sums.out[tile][2 * half + 1] * factor)};
    }
  }
}

}  // namespace moracle::cuda
