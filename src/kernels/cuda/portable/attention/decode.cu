// Sequences of one token, which is appended already. Blocks share the sections of a sequence and a key head, in turns;
// each leaves what it has summed in the workspace, and the last of them merges it. Of each section a warp takes half a
// page of keys and values, and copies the next one to shared memory while it computes.
#include "kernels/cuda/common/attention/attend.h"
#include "kernels/cuda/common/attention/halves.cuh"
#include "kernels/cuda/common/grid.cuh"

namespace moracle::cuda {

namespace {

// Warps of a block, so that its halves have room on every GPU.
template <int kDims>
constexpr int kWarps = kDims <= 128 ? 4 : 2;

// Shared memory: queries, and for each warp a half of keys and one of values, in whose place the warps leave what they
// have summed.
template <int kDims>
struct Shared {
  uint4* queries;  // [kSequenceRows, key_chunks]
  uint4* halves;   // [warps, 2, kHalf key_chunks]
  WarpSums warps;

  static constexpr std::int64_t bytes(std::int64_t row) {
    constexpr std::int64_t kSums = kWarps<kDims> * kSequenceRows * 2 * 4;
    return kSums + (kSequenceRows + kWarps<kDims> * 2 * kHalf) * row * 2;
  }
  __device__ Shared(uint4* at, const Task& task)
      : queries(at + kWarps<kDims> * kSequenceRows * 2 * 4 / 16),
        halves(queries + kSequenceRows * task.key_chunks),
        warps{reinterpret_cast<float*>(at), reinterpret_cast<float*>(halves)} {}
};

// The last position is in memory.
struct Appended {
  __device__ void put_key(const Task& /*task*/, uint4* /*keys*/) const {}
  __device__ void put_value(const Task& /*task*/, uint4* /*values*/) const {}
};

// Blocks (sequence, key head, split).
template <int kDims>
__global__ void __launch_bounds__(32 * kWarps<kDims>)
    attend_splits(const __grid_constant__ AttentionArgs args, const SplitWork work, std::byte* workspace) {
  extern __shared__ uint4 memory[];
  constexpr int kThreads = 32 * kWarps<kDims>;
  const AttentionShape& shape = args.shape;
  const KvSpan span = args.spans[blockIdx.x];
  if (span.count != 1) return;
  const std::int64_t kv_head = blockIdx.y;
  const Task task{.args = args,
                  .span = span,
                  .kv_head = kv_head,
                  .group = static_cast<int>(shape.heads / shape.kv_heads),
                  .dims = static_cast<int>(shape.head_dim),
                  .key_chunks = static_cast<int>(key_row(shape) / 8),
                  .sections = sections_of(span.start, shape.window, kWarps<kDims> * kHalf, gridDim.z)};
  const int splits = task.sections.splits;
  const auto split = static_cast<int>(blockIdx.z);
  if (split >= splits) return;
  const Shared<kDims> shared(memory, task);
  const WarpPages pages(task, shared.halves);
  Halves<kWarps<kDims>> half(task, split, splits);
  pages.copy_keys(half);
  pages.copy_values(half);
  for (int i = static_cast<int>(threadIdx.x); i < kSequenceRows * task.key_chunks; i += kThreads) {
    const int row = i / task.key_chunks;
    const int chunk = i % task.key_chunks;
    shared.queries[chunk_place(row, chunk, task.key_chunks)] =
        row < task.group ? query_chunk(args, span.begin, kv_head * task.group + row, chunk) : uint4{};
  }
  __syncthreads();
  RowSums<kDims> sums;
  Appended own;
  attend_halves(task, shared.queries, pages, own, half, sums);
  wait_copies<0>();
  __syncthreads();  // all warps are done with their halves
  give(task, sums, shared.warps);
  const SplitSums parts =
      split_sums(work, workspace, (static_cast<std::int64_t>(blockIdx.x) * shape.kv_heads + kv_head) * task.group,
                 static_cast<int>(gridDim.z), task.dims);
  const int chunks = task.dims / 4;
  __shared__ float2 whole[kSequenceRows];
  merge_warps<kWarps<kDims>>(
      task, shared.warps,
      [&](int row, float2 stats) {
        whole[row] = stats;
        if (splits > 1) *reinterpret_cast<float2*>(parts.stats_of(row, split)) = stats;
      },
      [&](unsigned i, const float4& value) {
        const auto row = static_cast<int>(i) / chunks;
        const int column = static_cast<int>(i) % chunks * 4;
        if (splits == 1) return write_output(task, row, column, value, whole[row].x, whole[row].y);
        *reinterpret_cast<float4*>(parts.sums_of(row, split) + column) = value;
      });
  if (splits == 1) return;
  auto* const counters = reinterpret_cast<std::int32_t*>(workspace + work.counters);
  if (!is_last(counters + span.begin * shape.kv_heads + kv_head, splits)) return;
  merge_splits<kThreads, kSequenceRows, static_cast<int>(kSplits)>(
      parts, task.group, splits, [&](int row, int column, const float4& value, float maximum, float sum) {
        write_output(task, row, column, value, maximum, sum);
      });
}

// Blocks that share a sequence and key head: a power of two. One order of sums for every batch leaves one.
int splits_of(const AttentionArgs& args) {
  if (args.batch_invariant != 0) return 1;
  return blocks_for_splits(args.span_count * args.shape.kv_heads, kSplits, kSplitBlocks);
}

template <int kDims>
int launch_splits(const AttentionArgs& args, std::byte* workspace, cudaStream_t stream) {
  static_assert(Shared<kDims>::bytes(kDims) <= kPortableShared);
  static_assert(2 * kHalf * 2 >= kSequenceRows * 4, "sums have room in the place of halves");
  const std::int64_t bytes = Shared<kDims>::bytes(key_row(args.shape));
  auto* const kernel = attend_splits<kDims>;
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
      error != cudaSuccess)
    return error;
  return launch_grid(
      kernel,
      {.grid = dim3(grid_of(args.span_count), grid_of(args.shape.kv_heads), static_cast<unsigned>(splits_of(args))),
       .threads = 32 * kWarps<kDims>,
       .shared = static_cast<std::size_t>(bytes),
       .early = false},
      stream, args, AttentionWork::lay_out(args).splits, workspace);
}

}  // namespace

int attend_splits(const AttentionArgs& args, std::byte* workspace, cudaStream_t stream) {
  if (args.shape.head_dim <= 64) return launch_splits<64>(args, workspace, stream);
  if (args.shape.head_dim <= 128) return launch_splits<128>(args, workspace, stream);
  return launch_splits<256>(args, workspace, stream);
}

}  // namespace moracle::cuda
