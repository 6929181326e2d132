// Sequences of one token: a block of threads takes splits of one. Of each section a warp takes a block of keys and
// values, half of it at a time: it copies the next half to shared memory while it computes.
#include "kernels/cuda/attention/attend.h"
#include "kernels/cuda/attention/page.cuh"
#include "kernels/cuda/attention/splits.cuh"

namespace moracle::cuda {

namespace {

constexpr int kWarps = static_cast<int>(kSectionPositions / kKvBlock);
constexpr int kThreads = 32 * kWarps;
constexpr int kRows = static_cast<int>(kMostGroup);
constexpr int kSectionHalves = static_cast<int>(kSectionPositions) / kHalf;

// One sequence and one key head.
struct Task {
  const AttentionArgs& args;
  const KvSpan& span;
  std::int64_t kv_head;
  int group;
  int dims;
  int key_chunks;  // of a row of keys
  Sections sections;
};

// Shared memory: queries; for each warp a half of keys and one of values; what the warps have summed.
struct Shared {
  uint4* queries;  // [kRows, key_chunks]
  uint4* halves;   // [warps, 2, kHalf key_chunks]
  float* stats;    // [warps, kRows, 2]
  float* sums;     // [warps, group, dims]

  static std::int64_t bytes(const AttentionShape& shape) {
    const std::int64_t sums = kWarps * (shape.heads / shape.kv_heads * shape.head_dim + 2 * kRows);
    return (kRows + kWarps * 2 * kHalf) * key_row(shape) * 2 + sums * 4;
  }
  __device__ Shared(uint4* at, const Task& task)
      : queries(at),
        halves(at + kRows * task.key_chunks),
        stats(reinterpret_cast<float*>(halves + kWarps * 2 * kHalf * task.key_chunks)),
        sums(stats + kWarps * kRows * 2) {}
};

// Halves of blocks that a warp takes, counted from position 0.
class Halves {
 public:
  __device__ Halves(const Task& task, int split) {
    const std::int64_t position = task.span.start;
    const std::int64_t window = task.args.shape.window;
    last_ = position / kHalf;
    const std::int64_t first = window == 0 ? 0 : max(position - window + 1, std::int64_t{0}) / kHalf;
    at_ = split < task.sections.splits ? (task.sections.first + split) * kSectionHalves + 2 * (threadIdx.x / 32)
                                       : last_ + 1;
    while (at_ < first) next();
  }
  [[nodiscard]] __device__ bool any() const { return at_ <= last_; }
  [[nodiscard]] __device__ std::int64_t at() const { return at_; }
  // Whether the position that this call appends is in it.
  [[nodiscard]] __device__ bool is_last() const { return at_ == last_; }
  __device__ void next() { at_ += at_ % 2 == 0 ? 1 : kSplits * kSectionHalves - 1; }

 private:
  std::int64_t at_;
  std::int64_t last_;
};

// What a warp copies and computes with.
class WarpPages {
 public:
  __device__ WarpPages(const Task& task, const Shared& shared)
      : task_(task),
        keys_(shared.halves + static_cast<int>(threadIdx.x) / 32 * 2 * kHalf * task.key_chunks),
        values_(keys_ + kHalf * task.key_chunks),
        lane_(static_cast<int>(threadIdx.x) % 32),
        reciprocal_(65536 / task.key_chunks + 1) {}

  [[nodiscard]] __device__ Chunks keys() const { return {keys_, task_.key_chunks, flip_of(task_.key_chunks)}; }
  [[nodiscard]] __device__ Values values() const { return {values_, 8 * task_.key_chunks}; }

  __device__ void copy_keys(const Halves& half) const {
    if (half.any()) {
      const uint4* const from = share(half).keys + half.at() % 2 * kHalf * task_.key_chunks;
      const int flip = flip_of(task_.key_chunks);
      for (int i = lane_; i < kHalf * task_.key_chunks; i += 32) {
        const int row = i * reciprocal_ >> 16;  // i / key_chunks of up to 32 chunks and rows
        copy_async(keys_ + (row % 2 != 0 ? i ^ flip : i), from + i);
      }
    }
    commit_copies();
  }
  __device__ void copy_values(const Halves& half) const {
    if (half.any()) {
      const uint4* const from = share(half).values + half.at() % 2 * kHalf * task_.key_chunks;
      for (int i = lane_; i < kHalf * task_.key_chunks; i += 32) copy_async(values_ + i, from + i);
    }
    commit_copies();
  }

 private:
  [[nodiscard]] __device__ Share share(const Halves& half) const {
    return share_of(task_.args, task_.span.table[half.at() / 2], task_.kv_head);
  }

  const Task& task_;
  uint4* keys_;
  uint4* values_;
  int lane_;
  int reciprocal_;
};

// The halves of a split, of which the first is on its way; when they are done, the first of the next split is.
template <int kDims>
__device__ void attend_split(const Task& task, const Shared& shared, const WarpPages& pages, Halves& half,
                             int next_split, RowSums<kDims>& sums) {
  const Chunks queries{shared.queries, task.key_chunks, flip_of(task.key_chunks)};
  const float scale = kLog2E / sqrtf(static_cast<float>(task.dims));
  sums.clear();
  bool more = half.any();
  if (!more) {  // of a window that begins behind this warp's part of the section
    half = Halves(task, next_split);
    pages.copy_keys(half);
    pages.copy_values(half);
  }
  while (more) {
    const std::int64_t base = half.at() * kHalf;
    const Visible all = visible_in(base, task.span.start, task.args.shape.window);
    const Visible seen{min(all.begin, kHalf), min(all.end, kHalf)};
    half.next();
    more = half.any();
    if (!more) half = Halves(task, next_split);
    float scores[kHalf / 8][4];
    wait_copies<1>();
    __syncwarp();
    score_keys(queries, pages.keys(), scores);
    __syncwarp();
    pages.copy_keys(half);
    const bool edge = seen.begin != 0 || seen.end != kHalf;
    if (edge) hide_scores(scores, {seen, seen});
    exponentiate(scores, scale, sums);
    wait_copies<1>();
    __syncwarp();
    if (edge) {
      add_values<kDims, true>(scores, pages.values(), task.dims, seen.end, sums);
    } else {
      add_values<kDims, false>(scores, pages.values(), task.dims, kHalf, sums);
    }
    __syncwarp();
    pages.copy_values(half);
  }
}

template <int kDims>
__device__ void give(const Task& task, const RowSums<kDims>& sums, const Shared& to) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int part = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = static_cast<int>(threadIdx.x) % 32 / 4 + 8 * half;
    const float sum = sum_of_parts(sums.sum[half]);
    if (row >= task.group) continue;
    float* const out = to.sums + (warp * task.group + row) * task.dims + 2 * part;
#pragma unroll
    for (int tile = 0; tile < kDims / 8; ++tile) {
      if (8 * tile >= task.dims) break;
      *reinterpret_cast<float2*>(out + 8 * tile) = {sums.out[tile][2 * half], sums.out[tile][2 * half + 1]};
    }
    if (part != 0) continue;
    to.stats[2 * (warp * kRows + row)] = sums.maximum[half];
    to.stats[2 * (warp * kRows + row) + 1] = sum;
  }
  __syncthreads();
}

// Every number of the rows, over the warps in their order: write(row, column, value, maximum, sum).
template <class Write>
__device__ void merge_warps(const Task& task, const Shared& from, const Write& write) {
  for (int i = static_cast<int>(threadIdx.x); i < task.group * task.dims; i += kThreads) {
    const int row = i / task.dims;
    const int column = i % task.dims;
    float maximum = -INFINITY;
    for (int warp = 0; warp < kWarps; ++warp) maximum = fmaxf(maximum, from.stats[2 * (warp * kRows + row)]);
    float value = 0.0F;
    float sum = 0.0F;
    for (int warp = 0; warp < kWarps; ++warp) {
      // A warp whose positions nobody sees has a maximum of -infinity and sums of 0.
      const float factor = power_of_two(from.stats[2 * (warp * kRows + row)] - maximum);
      sum = fmaf(from.stats[2 * (warp * kRows + row) + 1], factor, sum);
      value = fmaf(from.sums[(warp * task.group + row) * task.dims + column], factor, value);
    }
    write(row, column, value, maximum, sum);
  }
}

__device__ void write_output(const Task& task, int row, int column, float value, float maximum, float sum) {
  const AttentionArgs& args = task.args;
  const std::int64_t token = task.span.begin;
  const std::int64_t head = task.kv_head * task.group + row;
  args.out[(token * args.shape.heads + head) * task.dims + column] =
      gated_output(args, token, head, column, value * row_factor(args, head, maximum, sum));
}

// Blocks (sequence, key head, share of the splits). The grid starts while the one that appends still runs.
template <int kDims>
__global__ void __launch_bounds__(kThreads, kDims > 128 ? 1 : 2)
    attend_sections(const __grid_constant__ AttentionArgs args, const SplitWork work, std::byte* workspace,
                    std::int64_t first_span) {
  extern __shared__ uint4 memory[];
  allow_next_grid();
  const AttentionShape& shape = args.shape;
  const KvSpan span = args.spans[first_span + blockIdx.x];
  if (span.count != 1) return wait_for_last_grid();
  const Task task{.args = args,
                  .span = span,
                  .kv_head = blockIdx.y,
                  .group = static_cast<int>(shape.heads / shape.kv_heads),
                  .dims = static_cast<int>(shape.head_dim),
                  .key_chunks = static_cast<int>(key_row(shape) / 8),
                  .sections = sections_of(span.start, shape.window, kSectionPositions, kSplits)};
  const int splits = task.sections.splits;
  if (static_cast<int>(blockIdx.z) >= splits) return wait_for_last_grid();
  const Shared shared(memory, task);
  const WarpPages pages(task, shared);
  Halves half(task, static_cast<int>(blockIdx.z));
  const bool early = !half.is_last();
  if (!early) wait_for_last_grid();
  pages.copy_keys(half);
  pages.copy_values(half);
  if (early) wait_for_last_grid();
  for (int i = static_cast<int>(threadIdx.x); i < kRows * task.key_chunks; i += kThreads) {
    const int row = i / task.key_chunks;
    const int chunk = i % task.key_chunks;
    shared.queries[chunk_place(row, chunk, task.key_chunks)] =
        row < task.group ? query_chunk(args, span.begin, task.kv_head * task.group + row, chunk) : uint4{};
  }
  __syncthreads();
  const std::int64_t first_row = (blockIdx.x * shape.kv_heads + task.kv_head) * task.group;
  const SplitSums parts = split_sums(work, workspace, first_row, kSplits, task.dims);
  const auto shares = static_cast<int>(gridDim.z);
  for (int split = static_cast<int>(blockIdx.z); split < splits; split += shares) {
    RowSums<kDims> sums;
    attend_split(task, shared, pages, half, split + shares, sums);
    give(task, sums, shared);
    merge_warps(task, shared, [&](int row, int column, float value, float maximum, float sum) {
      if (splits == 1) return write_output(task, row, column, value, maximum, sum);
      parts.sums_of(row, split)[column] = value;
      if (column != 0) return;
      parts.stats_of(row, split)[0] = maximum;
      parts.stats_of(row, split)[1] = sum;
    });
    __syncthreads();
  }
  if (splits == 1) return;
  auto* const counters = reinterpret_cast<std::int32_t*>(workspace + work.counters);
  if (!is_last(counters + (first_span + blockIdx.x) * shape.kv_heads + task.kv_head, min(shares, splits))) return;
  merge_splits<kThreads, kRows, kSplits>(parts, task.group, splits,
                                         [&](int row, int column, const float4& value, float maximum, float sum) {
                                           write_output(task, row, column, value.x, maximum, sum);
                                           write_output(task, row, column + 1, value.y, maximum, sum);
                                           write_output(task, row, column + 2, value.z, maximum, sum);
                                           write_output(task, row, column + 3, value.w, maximum, sum);
                                         });
}

template <int kDims>
int launch_sections(const AttentionArgs& args, const SplitWork& work, std::byte* workspace, cudaStream_t stream) {
  const AttentionShape& shape = args.shape;
  const std::int64_t bytes = Shared::bytes(shape);
  auto* const kernel = attend_sections<kDims>;
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
      error != cudaSuccess)
    return error;
  int multiprocessors = 0;
  if (const cudaError_t error = count_multiprocessors(multiprocessors); error != cudaSuccess) return error;
  for (std::int64_t first = 0; first < args.span_count; first += kSplitSpans) {
    const std::int64_t spans = lesser(args.span_count - first, kSplitSpans);
    const int shares = blocks_for_splits(spans * shape.kv_heads, kSplits, 8 * multiprocessors);
    const dim3 grid(grid_of(spans), grid_of(shape.kv_heads), static_cast<unsigned>(shares));
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    const cudaLaunchConfig_t config{.gridDim = grid,
                                    .blockDim = dim3(kThreads),
                                    .dynamicSmemBytes = static_cast<std::size_t>(bytes),
                                    .stream = stream,
                                    .attrs = &attribute,
                                    .numAttrs = 1};
    if (const cudaError_t error = cudaLaunchKernelEx(&config, kernel, args, work, workspace, first);
        error != cudaSuccess)
      return error;
  }
  return cudaSuccess;
}

}  // namespace

int attend_sections(const AttentionArgs& args, const SplitWork& work, std::byte* workspace, cudaStream_t stream) {
  if (args.shape.head_dim <= 64) return launch_sections<64>(args, work, workspace, stream);
  if (args.shape.head_dim <= 128) return launch_sections<128>(args, work, workspace, stream);
  return launch_sections<256>(args, work, workspace, stream);
}

}  // namespace moracle::cuda
