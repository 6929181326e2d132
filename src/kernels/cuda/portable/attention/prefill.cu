// Sequences of several tokens: a block of threads takes kRows rows, queries of the heads that share a key head, and
// looks at one block of keys and values after the other, of which two are in shared memory; of long heads one.
#include "kernels/cuda/common/attention/attend.h"
#include "kernels/cuda/common/attention/page.cuh"
#include "kernels/cuda/common/attention/rows.cuh"

namespace moracle::cuda {

namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kRows = 16 * kWarps;

// 16-byte chunks in shared memory.
template <int kStages>
struct Stages {
  static constexpr bool kAhead = kStages > 1;  // a block is copied while the one before is looked at
  uint4* queries;                              // [kRows, key chunks]
  uint4* keys;                                 // [kStages][64, key chunks]
  uint4* values;                               // [kStages][2, key_row, 4]
  int key_chunks;
  int dims;

  static constexpr std::int64_t bytes(std::int64_t row) { return 2 * (kRows + 2 * kStages * kKvBlock) * row; }
  __device__ Stages(uint4* at, const AttentionShape& shape)
      : queries(at),
        keys(at + kRows * key_row(shape) / 8),
        values(keys + kStages * kKvBlock * key_row(shape) / 8),
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

// Of heads of up to kDims numbers.
template <int kDims>
using StagesOf = Stages<kDims <= 128 ? 2 : 1>;

// One block of keys and values. `kEdge`: rows see part of it.
template <bool kEdge, int kDims>
__device__ __forceinline__ void attend_page(const StagesOf<kDims>& stages, int stage, const Visible (&visible)[2],
                                            int stored, RowSums<kDims>& sums) {
  const int chunks = stages.key_chunks;
  const Chunks queries{stages.queries + static_cast<int>(threadIdx.x) / 32 * 16 * chunks, chunks, flip_of(chunks)};
  float scores[kPage / 8][4];
  score_keys(queries, stages.keys_of(stage), scores);
  if constexpr (kEdge) hide_scores(scores, visible);
  exponentiate(scores, kLog2E / sqrtf(static_cast<float>(stages.dims)), sums);
  add_values<kDims, kEdge>(scores, stages.values_of(stage), stages.dims, stored, sums);
}

template <int kDims>
__device__ void attend_block(const AttentionShape& shape, const StagesOf<kDims>& stages, int stage, std::int64_t base,
                             const std::int64_t (&position)[2], std::int64_t last, RowSums<kDims>& sums) {
  const Visible visible[2] = {visible_in(base, position[0], shape.window), visible_in(base, position[1], shape.window)};
  const auto whole = [](const Visible& of) { return of.begin == 0 && of.end == kPage; };
  if (__all_sync(~0U, whole(visible[0]) && whole(visible[1]))) {
    attend_page<false, kDims>(stages, stage, visible, kPage, sums);
  } else {
    attend_page<true, kDims>(stages, stage, visible, static_cast<int>(min(last + 1 - base, kKvBlock)), sums);
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
  const StagesOf<kDims> stages(shared, shape);
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
  constexpr bool kAhead = StagesOf<kDims>::kAhead;
  for (int stage = 0; block < end; ++block) {
    if (kAhead && block + 1 < end) stages.load(share_of(args, span.table[block + 1], kv_head), stage ^ 1);
    commit_copies();
    wait_copies<kAhead ? 1 : 0>();
    __syncthreads();
    attend_block(shape, stages, stage, block * kKvBlock, positions, last, sums);
    __syncthreads();
    if (!kAhead && block + 1 < end) stages.load(share_of(args, span.table[block + 1], kv_head), stage);
    if (kAhead) stage ^= 1;
  }
  write_rows(args, rows, token, sums);
}

template <int kDims>
int launch_tiles(const AttentionArgs& args, cudaStream_t stream) {
  const AttentionShape& shape = args.shape;
  static_assert(StagesOf<kDims>::bytes(kDims) <= kPortableShared);
  const std::int64_t bytes = StagesOf<kDims>::bytes(key_row(shape));
  const std::int64_t queries = kRows / (shape.heads / shape.kv_heads);
  auto* const kernel = attend_tiles<kDims>;
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
      error != cudaSuccess)
    return error;
  const dim3 grid(query_tiles(args, queries), grid_of(shape.kv_heads));
  kernel<<<grid, kThreads, static_cast<std::size_t>(bytes), stream>>>(args);
  return cudaGetLastError();
}

}  // namespace

int attend_tiles(const AttentionArgs& args, cudaStream_t stream) {
  if (has_sm90() && takes_products(args.shape)) return attend_products(args, stream);
  if (args.shape.head_dim <= 64) return launch_tiles<64>(args, stream);
  if (args.shape.head_dim <= 128) return launch_tiles<128>(args, stream);
  return launch_tiles<256>(args, stream);
}

}  // namespace moracle::cuda
