// Sequences of one token: a block of threads takes splits of one, four blocks of a section at a time, a warp each.
#include "kernels/cuda/attention/attend.h"
#include "kernels/cuda/attention/page.cuh"
#include "kernels/cuda/attention/splits.cuh"

namespace moracle::cuda {

namespace {

constexpr int kWarps = static_cast<int>(kSectionPositions / kKvBlock);
constexpr int kThreads = 32 * kWarps;
constexpr int kRows = static_cast<int>(kMostGroup);

// In shared memory, behind the queries: what the warps have of each row.
struct WarpSums {
  float* out;    // [warps, group, head_dim]
  float* stats;  // [warps, kRows, 2]

  static std::int64_t floats(std::int64_t group, std::int64_t dims) { return kWarps * (group * dims + 2 * kRows); }
};

template <int kDims>
__device__ void give(const RowSums<kDims>& sums, const WarpSums& to, int group, int dims) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int part = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = static_cast<int>(threadIdx.x) % 32 / 4 + 8 * half;
    const float sum = sum_of_parts(sums.sum[half]);
    if (row >= group) continue;
    float* const out = to.out + (warp * group + row) * dims + 2 * part;
#pragma unroll
    for (int tile = 0; tile < kDims / 8; ++tile) {
      if (8 * tile >= dims) break;
      *reinterpret_cast<float2*>(out + 8 * tile) = {sums.out[tile][2 * half], sums.out[tile][2 * half + 1]};
    }
    if (part != 0) continue;
    to.stats[2 * (warp * kRows + row)] = sums.maximum[half];
    to.stats[2 * (warp * kRows + row) + 1] = sum;
  }
}

// One number of a row, over the warps in their order.
__device__ Merged merge_warps(const WarpSums& from, int row, int column, int group, int dims) {
  Merged merged{0.0F, -INFINITY, 0.0F};
  for (int warp = 0; warp < kWarps; ++warp)
    merged.maximum = fmaxf(merged.maximum, from.stats[2 * (warp * kRows + row)]);
  for (int warp = 0; warp < kWarps; ++warp) {
    const float* const stats = from.stats + 2 * (warp * kRows + row);
    // A warp whose positions nobody sees has a maximum of -infinity and sums of 0.
    const float factor = exp2f(stats[0] - merged.maximum);
    merged.sum = fmaf(stats[1], factor, merged.sum);
    merged.value = fmaf(from.out[(warp * group + row) * dims + column], factor, merged.value);
  }
  return merged;
}

// One sequence and one key head.
struct Task {
  const AttentionArgs& args;
  const KvSpan& span;
  std::int64_t kv_head;
  int group;
  Sections sections;

  // Calls write(row, column, merged) for every number of the rows.
  template <class Merge, class Write>
  __device__ void each(const Merge& merge, const Write& write) const {
    const int dims = static_cast<int>(args.shape.head_dim);
    for (int i = static_cast<int>(threadIdx.x); i < group * dims; i += kThreads)
      write(i / dims, i % dims, merge(i / dims, i % dims));
  }
  __device__ void write_output(int row, int column, const Merged& merged) const {
    const std::int64_t head = kv_head * group + row;
    const float value = merged.value * row_factor(args, head, merged.maximum, merged.sum);
    args.out[(span.begin * args.shape.heads + head) * args.shape.head_dim + column] =
        gated_output(args, span.begin, head, column, value);
  }
};

template <int kDims>
__device__ void attend_split(const Task& task, const Chunks& queries, int split, RowSums<kDims>& sums) {
  const AttentionShape& shape = task.args.shape;
  const int dims = static_cast<int>(shape.head_dim);
  const int key_chunks = static_cast<int>(key_row(shape) / 8);
  const float scale = kLog2E / sqrtf(static_cast<float>(dims));
  const std::int64_t position = task.span.start;
  sums.clear();
  for (std::int64_t s = task.sections.first + split; s < task.sections.end; s += kSplits) {
    const std::int64_t page = s * kWarps + threadIdx.x / 32;
    const Visible seen = visible_in(page * kKvBlock, position, shape.window);
    if (seen.begin >= seen.end) continue;
    const Share share = share_of(task.args, task.span.table[page], task.kv_head);
    const Chunks keys{share.keys, key_chunks, 0};
    const Chunks values{share.values, kPageChunks, 0};
    const Visible visible[2] = {seen, seen};
    if (seen.begin == 0 && seen.end == kPage) {
      attend_page<kDims, false>(queries, keys, values, dims, scale, visible, kPage, sums);
    } else {
      attend_page<kDims, true>(queries, keys, values, dims, scale, visible, seen.end, sums);
    }
  }
}

// Blocks (sequence, key head, share of the splits).
template <int kDims>
__global__ void __launch_bounds__(kThreads, kDims > 64 ? 2 : 3)
    attend_sections(const __grid_constant__ AttentionArgs args, const SplitWork work, std::byte* workspace,
                    std::int64_t first_span) {
  extern __shared__ uint4 shared[];
  const AttentionShape& shape = args.shape;
  const KvSpan span = args.spans[first_span + blockIdx.x];
  if (span.count != 1) return;
  const Task task{args, span, blockIdx.y, static_cast<int>(shape.heads / shape.kv_heads),
                  sections_of(span.start, shape.window, kSplits)};
  if (static_cast<int>(blockIdx.z) >= task.sections.splits) return;
  const int dims = static_cast<int>(shape.head_dim);
  const int chunks = static_cast<int>(key_row(shape) / 8);
  const Chunks queries{shared, chunks, flip_of(chunks)};
  for (int i = static_cast<int>(threadIdx.x); i < kRows * chunks; i += kThreads) {
    const int row = i / chunks;
    shared[row * chunks + (i % chunks ^ (row % 2 != 0 ? queries.flip : 0))] =
        row < task.group ? query_chunk(args, span.begin, task.kv_head * task.group + row, i % chunks) : uint4{};
  }
  __syncthreads();
  auto* const stats = reinterpret_cast<float*>(shared + kRows * chunks);
  const WarpSums warps{stats + 2 * kWarps * kRows, stats};
  const auto merged = [&](int row, int column) { return merge_warps(warps, row, column, task.group, dims); };
  const std::int64_t first_row = (blockIdx.x * shape.kv_heads + task.kv_head) * task.group;
  const SplitSums parts = split_sums(work, workspace, first_row, kSplits, dims);
  for (int split = static_cast<int>(blockIdx.z); split < task.sections.splits; split += static_cast<int>(gridDim.z)) {
    RowSums<kDims> sums;
    attend_split(task, queries, split, sums);
    give(sums, warps, task.group, dims);
    __syncthreads();
    if (task.sections.splits == 1) {
      task.each(merged, [&](int row, int column, const Merged& of) { task.write_output(row, column, of); });
      return;
    }
    task.each(merged, [&](int row, int column, const Merged& of) {
      parts.sums_of(row, split)[column] = of.value;
      if (column != 0) return;
      parts.stats_of(row, split)[0] = of.maximum;
      parts.stats_of(row, split)[1] = of.sum;
    });
    __syncthreads();
  }
  auto* const counters = reinterpret_cast<std::int32_t*>(workspace + work.counters);
  const int blocks = min(static_cast<int>(gridDim.z), task.sections.splits);
  if (!is_last(counters + (first_span + blockIdx.x) * shape.kv_heads + task.kv_head, blocks)) return;
  task.each([&](int row, int column) { return merge_splits(parts, row, column, task.sections.splits); },
            [&](int row, int column, const Merged& of) { task.write_output(row, column, of); });
}

template <int kDims>
int launch_sections(const AttentionArgs& args, const SplitWork& work, std::byte* workspace, cudaStream_t stream) {
  const AttentionShape& shape = args.shape;
  const std::int64_t bytes =
      kRows * key_row(shape) * 2 + WarpSums::floats(shape.heads / shape.kv_heads, shape.head_dim) * 4;
  auto* const kernel = attend_sections<kDims>;
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
      error != cudaSuccess)
    return error;
  int multiprocessors = 0;
  if (const cudaError_t error = count_multiprocessors(multiprocessors); error != cudaSuccess) return error;
  for (std::int64_t first = 0; first < args.span_count; first += kSplitSpans) {
    const std::int64_t spans = lesser(args.span_count - first, kSplitSpans);
    const int shares = blocks_for_splits(spans * shape.kv_heads, kSplits, 4 * multiprocessors);
    const dim3 grid(grid_of(spans), grid_of(shape.kv_heads), static_cast<unsigned>(shares));
    kernel<<<grid, kThreads, static_cast<std::size_t>(bytes), stream>>>(args, work, workspace, first);
  }
  return cudaGetLastError();
}

}  // namespace

int attend_sections(const AttentionArgs& args, const SplitWork& work, std::byte* workspace, cudaStream_t stream) {
  if (args.shape.head_dim <= 64) return launch_sections<64>(args, work, workspace, stream);
  if (args.shape.head_dim <= 128) return launch_sections<128>(args, work, workspace, stream);
  return launch_sections<256>(args, work, workspace, stream);
}

}  // namespace moracle::cuda
