// Sequences of one token. The blocks of a cluster share the sections of a sequence and a key head, in turns, and merge
// what they have summed. Of each section a warp takes half a page of keys and values, and copies the next one to shared
// memory while it computes. What is there already is copied while the token's own queries, keys and values are still
// made; those are normed and rotated here, and the new key and value put in their place.
#include <cooperative_groups.h>

#include <algorithm>

#include "kernels/cuda/common/attention/attend.h"
#include "kernels/cuda/common/attention/halves.cuh"
#include "kernels/cuda/common/attention/head.cuh"
#include "kernels/cuda/common/grid.cuh"

namespace moracle::cuda {

namespace {

constexpr int kWarps = static_cast<int>(kSectionPositions) / kHalf;
constexpr int kThreads = 32 * kWarps;
constexpr int kRows = kSequenceRows;
constexpr int kMostShared = 226 * 1024;  // of a multiprocessor, beside what blocks have for themselves
// Of a multiprocessor.
template <int kDims>
constexpr int kBlocks = kDims > 128 ? 1 : 2;

// Shared memory: queries; for each warp a half of keys and one of values; what the warps have summed; what they have
// together.
struct Shared {
  uint4* queries;  // [kRows, key_chunks]
  uint4* halves;   // [warps, 2, kHalf key_chunks]
  WarpSums warps;
  float* own_stats;  // [kRows, 2], of the block
  float* own_sums;   // [group, dims]

  static __host__ __device__ std::int64_t floats(const AttentionShape& shape) {
    return shape.heads / shape.kv_heads * shape.head_dim + 2 * kRows;
  }
  static std::int64_t bytes(const AttentionShape& shape) {
    return (kRows + kWarps * 2 * kHalf) * key_row(shape) * 2 + (kWarps + 1) * floats(shape) * 4;
  }
  __device__ Shared(uint4* at, const Task& task)
      : queries(at),
        halves(at + kRows * task.key_chunks),
        warps{reinterpret_cast<float*>(halves + kWarps * 2 * kHalf * task.key_chunks),
              reinterpret_cast<float*>(halves + kWarps * 2 * kHalf * task.key_chunks) + kWarps * kRows * 2},
        own_stats(warps.stats + kWarps * floats(task.args.shape)),
        own_sums(own_stats + kRows * 2) {}
};

// The token's own key and value, by the warp whose half its position is in.
template <int kMost>
struct NewHead {
  HeadNumbers<kMost> own_key[1];
  HeadNumbers<kMost> value;

  __device__ void load(const Task& task) {
    const AttentionArgs& args = task.args;
    const std::int64_t first = task.span.begin * args.shape.kv_width() + task.kv_head * task.dims;
    own_key[0].load(args.k + first, task.dims);
    value.load(args.v + first, task.dims);
  }
  // `row`: room for a head in shared memory.
  __device__ void make(const Task& task, const HeadTerms<kMost>& terms, float* row) {
    const AttentionArgs& args = task.args;
    prepare(args, args.k_norm, terms, own_key, row);
    value.each(task.dims, [&](int, float& x) { x = clipped(x, args.shape.clip); });
    const std::int64_t position = task.span.start;
    const StoredHead to =
        stored_head(args, task.span.table[position / kKvBlock], task.kv_head, static_cast<int>(position % kKvBlock));
    own_key[0].each(8 * task.key_chunks, [&](int i, float x) { to.key[i] = i < task.dims ? encode_bf16(x) : 0; });
    value.each(task.dims, [&](int i, float x) { to.value[i * kHalfPositions] = encode_bf16(x); });
  }
  // In the half that the warp has copied.
  __device__ void put_key(const Task& task, uint4* keys) {
    const int slot = static_cast<int>(task.span.start % kHalf);
    auto* const to = reinterpret_cast<std::uint16_t*>(keys);
    own_key[0].each(8 * task.key_chunks, [&](int i, float x) {
      to[8 * chunk_place(slot, i / 8, task.key_chunks) + i % 8] = i < task.dims ? encode_bf16(x) : 0;
    });
    __syncwarp();
  }
  __device__ void put_value(const Task& task, uint4* values) {
    auto* const to = reinterpret_cast<std::uint16_t*>(values) + task.span.start % kHalf;
    value.each(task.dims, [&](int i, float x) { to[i * kHalf] = encode_bf16(x); });
    __syncwarp();
  }
};

// What has been summed under two maxima, in their order.
struct MergeFactors {
  float maximum;
  float before;
  float next;

  __device__ MergeFactors(float before_maximum, float next_maximum)
      : maximum(fmaxf(before_maximum, next_maximum)),
        before(power_of_two(before_maximum - maximum)),
        next(power_of_two(next_maximum - maximum)) {}
  [[nodiscard]] __device__ float merge(float sum, float next_sum) const { return fmaf(next_sum, next, sum * before); }
};

// The queries of the key head, a row for each of a warp's; zeros in the others.
template <int kMost>
struct Queries {
  static constexpr int kOwn = kRows / kWarps;
  HeadNumbers<kMost> heads[kOwn];

  static __device__ int row_of(int i) { return static_cast<int>(threadIdx.x) / 32 + kWarps * i; }
  __device__ void load(const Task& task) {
    const AttentionShape& shape = task.args.shape;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const std::int64_t head = task.kv_head * task.group + row_of(i);
      heads[i].load(task.args.q + task.span.begin * shape.q_width() + head * query_stride(shape),
                    row_of(i) < task.group ? task.dims : 0);
    }
  }
  // `row`: room for a head in shared memory, of the warp.
  __device__ void put(const Task& task, const HeadTerms<kMost>& terms, const Shared& shared, float* row) {
    auto* const to = reinterpret_cast<std::uint16_t*>(shared.queries);
    prepare(task.args, task.args.q_norm, terms, heads, row);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int dims = row_of(i) < task.group ? task.dims : 0;
      heads[i].each(8 * task.key_chunks, [&](int k, float x) {
        to[8 * chunk_place(row_of(i), k / 8, task.key_chunks) + k % 8] = k < dims ? encode_bf16(x) : 0;
      });
    }
  }
};

// What the cluster's blocks have, in their order; each thread four numbers of a row. Blocks that have none are gone.
__device__ void merge_cluster(const Task& task, const Shared& shared, int blocks) {
  auto cluster = cooperative_groups::this_cluster();
  if (blocks > 1) cluster.sync();
  const int chunks = task.dims / 4;
  const int fours = task.group * chunks;
  for (int i = static_cast<int>(blockIdx.z * kThreads + threadIdx.x); i < fours; i += blocks * kThreads) {
    const int row = i / chunks;
    float2 sum = reinterpret_cast<const float2*>(cluster.map_shared_rank(shared.own_stats, 0))[row];
    float4 value = reinterpret_cast<const float4*>(cluster.map_shared_rank(shared.own_sums, 0))[i];
#pragma unroll 4
    for (int rank = 1; rank < blocks; ++rank) {
      const auto of = static_cast<unsigned>(rank);
      const float2 stats = reinterpret_cast<const float2*>(cluster.map_shared_rank(shared.own_stats, of))[row];
      const float4 next = reinterpret_cast<const float4*>(cluster.map_shared_rank(shared.own_sums, of))[i];
      const MergeFactors both(sum.x, stats.x);
      sum = {both.maximum, both.merge(sum.y, stats.y)};
      value = {both.merge(value.x, next.x), both.merge(value.y, next.y), both.merge(value.z, next.z),
               both.merge(value.w, next.w)};
    }
    write_output(task, row, i % chunks * 4, value, sum.x, sum.y);
  }
  if (blocks > 1) cluster.sync();  // a block's sums stay until all have read them
}

// Clusters (sequence, key head). The grid starts while the one that makes queries, keys and values still runs.
template <int kDims>
__global__ void __launch_bounds__(kThreads, kBlocks<kDims>)
    attend_sections(const __grid_constant__ AttentionArgs args) {
  extern __shared__ uint4 memory[];
  allow_next_grid();
  const AttentionShape& shape = args.shape;
  const KvSpan span = args.spans[blockIdx.x];
  if (span.count != 1) return wait_for_last_grid();
  const Task task{.args = args,
                  .span = span,
                  .kv_head = blockIdx.y,
                  .group = static_cast<int>(shape.heads / shape.kv_heads),
                  .dims = static_cast<int>(shape.head_dim),
                  .key_chunks = static_cast<int>(key_row(shape) / 8),
                  .sections = sections_of(span.start, shape.window, kSectionPositions, kSplits)};
  const Shared shared(memory, task);
  const WarpPages pages(task, shared.halves);
  const int blocks = min(static_cast<int>(gridDim.z), task.sections.splits);
  const auto rank = static_cast<int>(blockIdx.z);
  if (rank >= blocks) return wait_for_last_grid();
  Halves<kWarps> half(task, rank, blocks);
  pages.copy_keys(half);
  pages.copy_values(half);
  constexpr int kMost = kDims / 32;
  const std::int64_t last = span.start / kSectionPositions - task.sections.first;
  const bool appends = last % blocks == rank && span.start / kHalf % kWarps == threadIdx.x / 32;
  HeadTerms<kMost> terms;
  HeadTerms<kMost> key_terms;
  terms.load(args, args.q_norm, span.begin);
  if (appends) key_terms.load(args, args.k_norm, span.begin);
  wait_for_last_grid();
  Queries<kMost> queries;
  NewHead<kMost> own{};
  queries.load(task);
  if (appends) own.load(task);
  float* const row = shared.warps.sums + static_cast<int>(threadIdx.x) / 32 * task.dims;
  queries.put(task, terms, shared, row);
  if (appends) own.make(task, key_terms, row);
  __syncthreads();
  RowSums<kDims> sums;
  attend_halves(task, shared.queries, pages, own, half, sums);
  give(task, sums, shared.warps);
  merge_warps<kWarps>(
      task, shared.warps, [&](int of, float2 stats) { reinterpret_cast<float2*>(shared.own_stats)[of] = stats; },
      [&](unsigned i, const float4& value) { reinterpret_cast<float4*>(shared.own_sums)[i] = value; });
  __syncthreads();
  merge_cluster(task, shared, blocks);
}

// Blocks of a cluster: a power of two, the most with which all blocks are at work at once.
template <int kDims>
int cluster_blocks(const AttentionArgs& args, int multiprocessors) {
  std::int64_t blocks = kSplits;
  if (args.batch_invariant != 0) return static_cast<int>(blocks);
  const std::int64_t rows = args.span_count * args.shape.kv_heads;
  const std::int64_t at_once =
      multiprocessors * std::min<std::int64_t>(kBlocks<kDims>, kMostShared / Shared::bytes(args.shape));
  while (blocks > 1 && rows * blocks > at_once) blocks /= 2;
  return static_cast<int>(blocks);
}

template <int kDims>
int launch_sections(const AttentionArgs& args, cudaStream_t stream) {
  int multiprocessors = 0;
  if (const cudaError_t error = count_multiprocessors(multiprocessors); error != cudaSuccess) return error;
  const int blocks = cluster_blocks<kDims>(args, multiprocessors);
  const std::int64_t bytes = Shared::bytes(args.shape);
  auto* const kernel = attend_sections<kDims>;
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
      error != cudaSuccess)
    return error;
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
      error != cudaSuccess)
    return error;
  const auto cluster = static_cast<unsigned>(blocks);
  return launch_grid(kernel,
                     {.grid = dim3(grid_of(args.span_count), grid_of(args.shape.kv_heads), cluster),
                      .threads = kThreads,
                      .shared = static_cast<std::size_t>(bytes),
                      .cluster = dim3(1, 1, cluster)},
                     stream, args);
}

}  // namespace

int attend_sections(const AttentionArgs& args, cudaStream_t stream) {
  if (args.shape.head_dim <= 64) return launch_sections<64>(args, stream);
  if (args.shape.head_dim <= 128) return launch_sections<128>(args, stream);
  return launch_sections<256>(args, stream);
}

}  // namespace moracle::cuda
