// Sequences of one token: warps take halves of pages of keys and values in turns, and copy the next one to shared
// memory while they compute.
#pragma once

#include <cstdint>

#include "kernels/cuda/common/attention/page.cuh"
#include "kernels/cuda/common/attention/splits.cuh"

namespace moracle::cuda {

inline constexpr int kSequenceRows = static_cast<int>(kMostGroup);  // queries of one sequence and key head

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

// Halves of pages that a warp takes, counted from position 0: of every section that its block has, one of kWarps.
template <int kWarps>
class Halves {
 public:
  __device__ Halves(const Task& task, int rank, int blocks) : step_(blocks * kWarps) {
    const std::int64_t position = task.span.start;
    const std::int64_t window = task.args.shape.window;
    last_ = position / kHalf;
    const std::int64_t first = window == 0 ? 0 : max(position - window + 1, std::int64_t{0}) / kHalf;
    at_ = (task.sections.first + rank) * kWarps + threadIdx.x / 32;
    while (at_ < first) next();
  }
  [[nodiscard]] __device__ bool any() const { return at_ <= last_; }
  [[nodiscard]] __device__ std::int64_t at() const { return at_; }
  // Whether the sequence's last position is in it.
  [[nodiscard]] __device__ bool is_last() const { return at_ == last_; }
  __device__ void next() { at_ += step_; }

 private:
  std::int64_t at_;
  std::int64_t last_;
  int step_;
};

// What a warp copies and computes with: a half of keys and one of values. `memory`: [warps, 2, kHalf key_chunks].
class WarpPages {
 public:
  __device__ WarpPages(const Task& task, uint4* memory)
      : task_(task),
        keys_(memory + static_cast<int>(threadIdx.x) / 32 * 2 * kHalf * task.key_chunks),
        values_(keys_ + kHalf * task.key_chunks),
        lane_(static_cast<int>(threadIdx.x) % 32),
        reciprocal_(65536 / task.key_chunks + 1) {}

  [[nodiscard]] __device__ uint4* own_keys() const { return keys_; }
  [[nodiscard]] __device__ uint4* own_values() const { return values_; }
  [[nodiscard]] __device__ Chunks keys() const { return {keys_, task_.key_chunks, flip_of(task_.key_chunks)}; }
  [[nodiscard]] __device__ Values values() const { return {values_, 8 * task_.key_chunks}; }

  template <int kWarps>
  __device__ void copy_keys(const Halves<kWarps>& half) const {
    if (half.any()) {
      const uint4* const from = share(half.at()).keys + half.at() % 2 * kHalf * task_.key_chunks;
      const int flip = flip_of(task_.key_chunks);
      for (int i = lane_; i < kHalf * task_.key_chunks; i += 32) {
        const int row = i * reciprocal_ >> 16;  // i / key_chunks of up to 32 chunks and rows
        copy_async(keys_ + (row % 2 != 0 ? i ^ flip : i), from + i);
      }
    }
    commit_copies();
  }
  template <int kWarps>
  __device__ void copy_values(const Halves<kWarps>& half) const {
    if (half.any()) {
      const uint4* const from = share(half.at()).values + half.at() % 2 * kHalf * task_.key_chunks;
      for (int i = lane_; i < kHalf * task_.key_chunks; i += 32) copy_async(values_ + i, from + i);
    }
    commit_copies();
  }

 private:
  [[nodiscard]] __device__ Share share(std::int64_t half) const {
    return share_of(task_.args, task_.span.table[half / 2], task_.kv_head);
  }

  const Task& task_;
  uint4* keys_;
  uint4* values_;
  int lane_;
  int reciprocal_;
};

// The warp's halves, of which the first is on its way. `own` puts the last position into a half, where it is not in
// memory before.
template <int kDims, int kWarps, class Own>
__device__ void attend_halves(const Task& task, const uint4* query_rows, const WarpPages& pages, Own& own,
                              Halves<kWarps>& half, RowSums<kDims>& sums) {
  const Chunks queries{query_rows, task.key_chunks, flip_of(task.key_chunks)};
  const float scale = kLog2E / sqrtf(static_cast<float>(task.dims));
  sums.clear();
  while (half.any()) {
    const std::int64_t base = half.at() * kHalf;
    const Visible all = visible_in(base, task.span.start, task.args.shape.window);
    const Visible seen{min(all.begin, kHalf), min(all.end, kHalf)};
    const bool last = half.is_last();
    half.next();
    float scores[kHalf / 8][4];
    wait_copies<1>();
    __syncwarp();
    if (last) own.put_key(task, pages.own_keys());
    score_keys(queries, pages.keys(), scores);
    __syncwarp();
    pages.copy_keys(half);
    const bool edge = seen.begin != 0 || seen.end != kHalf;
    if (edge) hide_scores(scores, {seen, seen});
    exponentiate(scores, scale, sums);
    wait_copies<1>();
    __syncwarp();
    if (last) own.put_value(task, pages.own_values());
    if (edge) {
      add_values<kDims, true>(scores, pages.values(), task.dims, seen.end, sums);
    } else {
      add_values<kDims, false>(scores, pages.values(), task.dims, kHalf, sums);
    }
    __syncwarp();
    pages.copy_values(half);
  }
}

// What the warps of a block have summed, in shared memory.
struct WarpSums {
  float* stats;  // [warps, kSequenceRows, 2]
  float* sums;   // [warps, group, dims]
};

template <int kDims>
__device__ void give(const Task& task, const RowSums<kDims>& sums, const WarpSums& to) {
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
    to.stats[2 * (warp * kSequenceRows + row)] = sums.maximum[half];
    to.stats[2 * (warp * kSequenceRows + row) + 1] = sum;
  }
  __syncthreads();
}

// The rows of a block, over its warps in their order: put_stats(row, {maximum, sum}) of each row, and behind all of
// them put_sums(i, four numbers) of numbers 4 i to 4 i + 3 of [group, dims].
template <int kWarps, class PutStats, class PutSums>
__device__ void merge_warps(const Task& task, const WarpSums& of, const PutStats& put_stats, const PutSums& put_sums) {
  constexpr int kThreads = 32 * kWarps;
  __shared__ float factors[kSequenceRows][kWarps];
  for (int row = static_cast<int>(threadIdx.x); row < task.group; row += kThreads) {
    float2 of_warp[kWarps];
    float maximum = -INFINITY;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      of_warp[warp] = reinterpret_cast<const float2*>(of.stats)[warp * kSequenceRows + row];
      maximum = fmaxf(maximum, of_warp[warp].x);
    }
    float sum = 0.0F;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      // A warp whose positions nobody sees has a maximum of -infinity and sums of 0.
      factors[row][warp] = power_of_two(of_warp[warp].x - maximum);
      sum = fmaf(of_warp[warp].y, factors[row][warp], sum);
    }
    put_stats(row, float2{maximum, sum});
  }
  __syncthreads();
  const auto chunks = static_cast<unsigned>(task.dims) / 4;
  const unsigned all = static_cast<unsigned>(task.group) * chunks;
  const auto* const parts = reinterpret_cast<const float4*>(of.sums);
  for (unsigned i = threadIdx.x; i < all; i += kThreads) {
    const unsigned row = i / chunks;
    float4 value{};
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      const float4 part = parts[static_cast<unsigned>(warp) * all + i];
      const float factor = factors[row][warp];
      value.x = fmaf(part.x, factor, value.x);
      value.y = fmaf(part.y, factor, value.y);
      value.z = fmaf(part.z, factor, value.z);
      value.w = fmaf(part.w, factor, value.w);
    }
    put_sums(i, value);
  }
}

// Four columns of a row.
__device__ inline void write_output(const Task& task, int row, int column, const float4& value, float maximum,
                                    float sum) {
  const AttentionArgs& args = task.args;
  const std::int64_t token = task.span.begin;
  const std::int64_t head = task.kv_head * task.group + row;
  const float factor = row_factor(args, head, maximum, sum);
  *reinterpret_cast<float4*>(args.out + (token * args.shape.heads + head) * task.dims + column) = {
      gated_output(args, token, head, column, value.x * factor),
      gated_output(args, token, head, column + 1, value.y * factor),
      gated_output(args, token, head, column + 2, value.z * factor),
      gated_output(args, token, head, column + 3, value.w * factor)};
}

}  // namespace moracle::cuda
