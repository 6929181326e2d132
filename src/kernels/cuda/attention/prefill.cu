// Sequences of several tokens: a block of threads takes kRows rows, queries of the heads that share a key head, and
// looks at one block of keys and values after the other, of which two are in shared memory.
#include "kernels/cuda/attention/attend.h"
#include "kernels/cuda/attention/page.cuh"

namespace moracle::cuda {

namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kRows = 16 * kWarps;

// Queries [first, first + queries) of a sequence.
struct Tile {
  std::int64_t span;  // -1: there is no such tile
  std::int64_t first;
  int queries;
};

// The tile with this number. Threads of a warp look through as many sequences at a time.
__device__ Tile find_tile(const AttentionArgs& args, std::int64_t number, int most_queries) {
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

// 16-byte chunks in shared memory.
struct Stages {
  uint4* queries;  // [kRows, key chunks]
  uint4* keys;     // [2][64, key chunks]
  uint4* values;   // [2][2, key_row, 4]
  int key_chunks;
  int dims;

  static std::int64_t bytes(const AttentionShape& shape) { return 2 * (kRows + 4 * kKvBlock) * key_row(shape); }
  __device__ Stages(uint4* at, const AttentionShape& shape)
      : queries(at),
        keys(at + kRows * key_row(shape) / 8),
        values(keys + 2 * kKvBlock * key_row(shape) / 8),
        key_chunks(static_cast<int>(key_row(shape) / 8)),
        dims(static_cast<int>(shape.head_dim)) {}

  [[nodiscard]] __device__ Chunks keys_of(int stage) const {
    return {keys + stage * kPage * key_chunks, key_chunks, flip_of(key_chunks)};
  }
  [[nodiscard]] __device__ Values values_of(int stage) const {
    return {values + stage * kPage * key_chunks, 8 * key_chunks};
  }
  __device__ void load(const Share& share, int stage) const {
    for (int i = static_cast<int>(threadIdx.x); i < kPage * key_chunks; i += kThreads) {
      copy_async(keys + stage * kPage * key_chunks + chunk_place(i / key_chunks, i % key_chunks, key_chunks),
                 share.keys + i);
      copy_async(values + stage * kPage * key_chunks + i, share.values + i);
    }
  }
};

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

// One block of keys and values. `kEdge`: rows see part of it.
template <bool kEdge, int kDims>
__device__ __forceinline__ void attend_page(const Stages& stages, int stage, const Visible (&visible)[2], int stored,
                                            RowSums<kDims>& sums) {
  const int chunks = stages.key_chunks;
  const Chunks queries{stages.queries + static_cast<int>(threadIdx.x) / 32 * 16 * chunks, chunks, flip_of(chunks)};
  float scores[kPage / 8][4];
  score_keys(queries, stages.keys_of(stage), scores);
  if constexpr (kEdge) hide_scores(scores, visible);
  exponentiate(scores, kLog2E / sqrtf(static_cast<float>(stages.dims)), sums);
  add_values<kDims, kEdge>(scores, stages.values_of(stage), stages.dims, stored, sums);
}

template <int kDims>
__device__ void attend_block(const AttentionShape& shape, const Stages& stages, int stage, std::int64_t base,
                             const std::int64_t (&position)[2], std::int64_t last, RowSums<kDims>& sums) {
  const Visible visible[2] = {visible_in(base, position[0], shape.window), visible_in(base, position[1], shape.window)};
  const auto whole = [](const Visible& of) { return of.begin == 0 && of.end == kPage; };
  if (__all_sync(~0U, whole(visible[0]) && whole(visible[1]))) {
    attend_page<false>(stages, stage, visible, kPage, sums);
  } else {
    attend_page<true>(stages, stage, visible, static_cast<int>(min(last + 1 - base, kKvBlock)), sums);
  }
}

// Blocks (tile, key head), late tiles first: they see more keys.
template <int kDims>
__global__ void __launch_bounds__(kThreads, kDims > 128 ? 1 : 2)
    attend_tiles(const __grid_constant__ AttentionArgs args) {
  extern __shared__ uint4 shared[];
  const AttentionShape& shape = args.shape;
  const int group = static_cast<int>(shape.heads / shape.kv_heads);
  const Tile tile = find_tile(args, gridDim.x - 1 - blockIdx.x, kRows / group);
  if (tile.span < 0) return;
  const KvSpan span = args.spans[tile.span];
  const std::int64_t kv_head = blockIdx.y;
  const Stages stages(shared, shape);
  const std::int64_t token = span.begin + tile.first;
  const std::int64_t position = span.start + tile.first;
  const std::int64_t last = position + tile.queries - 1;
  const std::int64_t oldest = shape.window == 0 ? 0 : max(position - shape.window + 1, std::int64_t{0});
  const std::int64_t end = last / kKvBlock + 1;
  std::int64_t block = oldest / kKvBlock;
  stages.load(share_of(args, span.table[block], kv_head), 0);
  commit_copies();
  for (int i = static_cast<int>(threadIdx.x); i < kRows * stages.key_chunks; i += kThreads) {
    const int row = i / stages.key_chunks;
    const int chunk = i % stages.key_chunks;
    stages.queries[chunk_place(row, chunk, stages.key_chunks)] =
        row < tile.queries * group ? query_chunk(args, token + row / group, kv_head * group + row % group, chunk)
                                   : uint4{};
  }
  const Rows rows(tile, kv_head, group);
  const std::int64_t positions[2] = {position + rows.query[0], position + rows.query[1]};
  RowSums<kDims> sums;
  sums.clear();
  for (int stage = 0; block < end; ++block, stage ^= 1) {
    if (block + 1 < end) stages.load(share_of(args, span.table[block + 1], kv_head), stage ^ 1);
    commit_copies();
    wait_copies<1>();
    __syncthreads();
    attend_block(shape, stages, stage, block * kKvBlock, positions, last, sums);
    __syncthreads();
  }
  write_rows(args, rows, token, sums);
}

template <int kDims>
int launch_tiles(const AttentionArgs& args, cudaStream_t stream) {
  const AttentionShape& shape = args.shape;
  const std::int64_t bytes = Stages::bytes(shape);
  const std::int64_t queries = kRows / (shape.heads / shape.kv_heads);
  auto* const kernel = attend_tiles<kDims>;
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
      error != cudaSuccess)
    return error;
  // A sequence has a tile that is not full.
  const dim3 grid(grid_of(args.tokens / queries + lesser(args.span_count, args.tokens)), grid_of(shape.kv_heads));
  kernel<<<grid, kThreads, static_cast<std::size_t>(bytes), stream>>>(args);
  return cudaGetLastError();
}

}  // namespace

int attend_tiles(const AttentionArgs& args, cudaStream_t stream) {
  if (args.shape.head_dim <= 64) return launch_tiles<64>(args, stream);
  if (args.shape.head_dim <= 128) return launch_tiles<128>(args, stream);
  return launch_tiles<256>(args, stream);
}

}  // namespace moracle::cuda
