// The choice of experts, of what a token's router logits are.
#pragma once

#include "kernels/cuda/common/arithmetic.h"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/ops/norm.cuh"

namespace moracle::cuda {

inline constexpr float kLowest = -3.402823466e38F;

__device__ inline float route_score(RouteScore score, float logit, float top) {
  switch (score) {
    case RouteScore::softmax:
      return expf(logit - top);
    case RouteScore::sigmoid:
      return sigmoid(logit);
    case RouteScore::sqrt_softplus:
      return sqrtf(logit > 20.0F ? logit : log1pf(expf(logit)));
    case RouteScore::logit:
      break;
  }
  return logit;
}

// What is held of a token.
struct RouteRow {
  float scores[kMostRouted];
  float choice[kMostRouted];
  bool taken[kMostRouted];  // of groups
  float groups[kMostRouted];
  std::int32_t ids[kMostRouted];
  float weights[kMostRouted];
  int ranks[kMostRouted];  // of choices, by a block
};

__device__ __forceinline__ int lane_of() {
  return static_cast<int>(threadIdx.x) % 32;
}

// The best of all lanes, in every lane: numbers in the order of their bits, of equal ones the lowest index.
__device__ __forceinline__ int best_of_lanes(const Ranked<float>& own) {
  const std::uint32_t bits = __float_as_uint(own.value + 0.0F);  // -0 is 0
  const std::uint32_t ordered = own.index < 0 ? 0U : (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  const std::uint32_t most = __reduce_max_sync(~0U, ordered);
  const unsigned index = own.index >= 0 && ordered == most ? static_cast<unsigned>(own.index) : ~0U;
  return static_cast<int>(__reduce_min_sync(~0U, index));
}

// Puts experts outside the best groups out of the running.
__device__ inline void keep_best_groups(const RouteArgs& args, RouteRow& row) {
  const int width = args.shape.experts / args.shape.groups;
  for (int g = lane_of(); g < args.shape.groups; g += 32) {
    float first = kLowest;
    float second = kLowest;
    for (int i = g * width; i < (g + 1) * width; ++i) {
      const float value = row.choice[i];
      if (value > first) {
        second = first;
        first = value;
      } else {
        second = fmaxf(second, value);
      }
    }
    row.groups[g] = args.shape.groups_by == RouteGroups::best || width < 2 ? first : first + second;
    row.taken[g] = false;
  }
  __syncwarp();
  if (lane_of() == 0) {
    for (int n = 0; n < args.shape.top_groups; ++n) {
      Ranked<float> best{0.0F, -1};
      for (int g = 0; g < args.shape.groups; ++g) {
        if (!row.taken[g]) best = better(best, {row.groups[g], g});
      }
      if (best.index >= 0) row.taken[best.index] = true;
    }
  }
  __syncwarp();
  for (int e = lane_of(); e < args.shape.experts; e += 32) {
    if (!row.taken[e / width]) row.choice[e] = -INFINITY;
  }
  __syncwarp();
}

// Numbers of a row in their order.
__device__ __forceinline__ float ordered_sum(const float* weights, int count) {
  float sum = 0.0F;
  for (int i = 0; i < count; ++i) sum += weights[i];
  return sum;
}

__device__ inline void weigh(const RouteArgs& args, RouteRow& row, const float* logits) {
  const int top_k = args.shape.top_k;
  int taken = 0;  // those without an expert are the last ones
  for (int i = lane_of(); i < top_k; i += 32) {
    const int id = row.ids[i];
    taken += id >= 0 ? 1 : 0;
    row.weights[i] = id < 0                                               ? 0.0F
                     : args.shape.weight == RouteWeight::sigmoid_of_logit ? sigmoid(logits[id])
                                                                          : row.scores[id];
  }
  taken = __reduce_add_sync(~0U, taken);
  __syncwarp();
  if (args.shape.weight == RouteWeight::softmax_of_chosen && taken > 0) {
    float top = row.weights[0];
    for (int i = 1; i < taken; ++i) top = fmaxf(top, row.weights[i]);
    __syncwarp();
    for (int i = lane_of(); i < taken; i += 32) row.weights[i] = expf(row.weights[i] - top);
    __syncwarp();
    const float sum = ordered_sum(row.weights, taken);
    __syncwarp();
    for (int i = lane_of(); i < taken; i += 32) row.weights[i] /= sum;
    __syncwarp();
  }
  float divisor = 1.0F;
  if (args.shape.renormalize != 0) {
    const float sum = ordered_sum(row.weights, top_k);
    if (sum > 0.0F) divisor = sum;
  }
  __syncwarp();
  for (int i = lane_of(); i < top_k; i += 32) row.weights[i] = row.weights[i] / divisor * args.shape.factor;
}

// The experts of a token into row.ids. A lane holds kMost of the numbers to choose by, and the best of them, and looks
// for the next one where that was taken.
template <int kMost>
__device__ __forceinline__ void choose_held(const RouteArgs& args, RouteRow& row) {
  const int lane = lane_of();
  float choice[kMost];
#pragma unroll
  for (int j = 0; j < kMost; ++j) {
    const int e = lane + 32 * j;
    choice[j] = e < args.shape.experts ? row.choice[e] + 0.0F : 0.0F;  // -0 is 0
  }
  std::uint32_t left = 0;
#pragma unroll
  for (int j = 0; j < kMost; ++j) left |= lane + 32 * j < args.shape.experts ? 1U << j : 0U;
  const auto best_left = [&] {
    Ranked<float> best{0.0F, -1};
#pragma unroll
    for (int j = 0; j < kMost; ++j) {
      const bool better_one = (left >> j & 1U) != 0 && (best.index < 0 || choice[j] > best.value);
      if (better_one) best = {choice[j], lane + 32 * j};
    }
    return best;
  };
  Ranked<float> own = best_left();
  for (int i = 0; i < args.shape.top_k; ++i) {
    const int id = best_of_lanes(own);
    if (lane == 0) row.ids[i] = id;
    if (id < 0 || id != own.index) continue;
    left &= ~(1U << id / 32);
    own = best_left();
  }
}

__device__ __forceinline__ void choose(const RouteArgs& args, RouteRow& row, std::int64_t token) {
  if (args.fixed_ids != nullptr) {
    const std::int32_t* const fixed =
        args.fixed_ids + static_cast<std::int64_t>(args.token_ids[token]) * args.shape.top_k;
    for (int i = lane_of(); i < args.shape.top_k; i += 32)
      row.ids[i] = fixed[i] >= 0 && fixed[i] < args.shape.experts ? fixed[i] : -1;
  } else if (args.shape.experts <= 128) {
    choose_held<4>(args, row);
  } else if (args.shape.experts <= 256) {
    choose_held<8>(args, row);
  } else {
    choose_held<kMostRouted / 32>(args, row);
  }
}

// What a token takes, by a warp: its experts are chosen.
__device__ __forceinline__ void finish_token(const RouteArgs& args, RouteRow& row, std::int64_t token) {
  const std::int32_t top_k = args.shape.top_k;
  weigh(args, row, args.logits + token * args.shape.experts);
  __syncwarp();
  std::uint32_t* const counts = args.counts == nullptr || args.count_rows[token] < 0
                                    ? nullptr
                                    : args.counts + args.count_rows[token] * args.count_stride;
  for (int i = lane_of(); i < top_k; i += 32) {
    args.ids[token * top_k + i] = row.ids[i];
    args.weights[token * top_k + i] = row.weights[i];
    if (counts != nullptr && row.ids[i] >= 0) atomicAdd(counts + row.ids[i], 1U);
  }
}

// A token with bad logits, or none, by a warp.
__device__ __forceinline__ void refuse_token(const RouteArgs& args, std::int64_t token, bool none) {
  for (int i = lane_of(); i < args.shape.top_k; i += 32) {
    args.ids[token * args.shape.top_k + i] = -1;
    args.weights[token * args.shape.top_k + i] = 0.0F;
  }
  if (lane_of() == 0 && !none && args.bad_layer != nullptr)
    args.bad_layer[token] = min(args.bad_layer[token], args.layer);
}

// The sum of a row's scores, in every lane: the same bits by whatever warp.
__device__ __forceinline__ float sum_scores(const RouteArgs& args, const RouteRow& row) {
  float sum = 0.0F;
  for (int e = lane_of(); e < args.shape.experts; e += 32) sum += row.scores[e];
  return warp_sum(sum);
}

__device__ __forceinline__ void put_score(const RouteArgs& args, RouteRow& row, int expert, float score) {
  row.scores[expert] = score;
  row.choice[expert] = score + (args.bias != nullptr ? args.bias[expert] : 0.0F);
}

// Of one token, by a warp.
__device__ inline void route_by_warp(const RouteArgs& args, RouteRow& row, std::int64_t token) {
  const std::int32_t experts = args.shape.experts;
  const float* const logits = args.logits + token * experts;
  const int lane = lane_of();
  const bool none = args.token_ids != nullptr && args.token_ids[token] < 0;
  float most = -INFINITY;
  bool bad = none;
  for (int e = lane; e < experts; e += 32) {
    row.scores[e] = logits[e];
    bad = bad || !isfinite(row.scores[e]);
    most = fmaxf(most, row.scores[e]);
  }
  if (__any_sync(~0U, bad ? 1 : 0) != 0) return refuse_token(args, token, none);
  for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0U, most, step));
  for (int e = lane; e < experts; e += 32) row.scores[e] = route_score(args.shape.score, row.scores[e], most);
  const float divisor = args.shape.score == RouteScore::softmax ? sum_scores(args, row) : 1.0F;
  for (int e = lane; e < experts; e += 32) put_score(args, row, e, row.scores[e] / divisor);
  __syncwarp();
  if (args.shape.groups_by != RouteGroups::none && args.shape.groups > 1) keep_best_groups(args, row);
  choose(args, row, token);
  __syncwarp();
  finish_token(args, row, token);
}

inline constexpr int kRouteThreads = kNormThreads;  // of a block that routes a token

// How many experts come before each: a greater choice, of equal ones the lower index. Where threads are as many,
// several share an expert.
__device__ __forceinline__ void rank_by_block(const RouteArgs& args, RouteRow& row) {
  const int experts = args.shape.experts;
  const int thread = static_cast<int>(threadIdx.x);
  const int parts = max(1, kRouteThreads / experts);
  const int share = (experts + parts - 1) / parts;
  const int part = parts == 1 ? 0 : thread / experts;
  if (part < parts) {
    const int begin = part * share;
    const int end = min(begin + share, experts);
    for (int e = parts == 1 ? thread : thread % experts; e < experts; e += kRouteThreads) {
      const float own = row.choice[e] + 0.0F;  // -0 is 0
      int before = 0;
#pragma unroll 8
      for (int other = begin; other < end; ++other) {
        const float value = row.choice[other];
        before += value > own || (value == own && other < e) ? 1 : 0;
      }
      atomicAdd(&row.ranks[e], before);
    }
  }
  __syncthreads();
  for (int e = thread; e < experts; e += kRouteThreads) {
    if (row.ranks[e] < args.shape.top_k) row.ids[row.ranks[e]] = e;
  }
}

// The same by a block, with the same bits. kLoaded: logits are the row's scores.
template <bool kLoaded>
__device__ inline void route_by_block(const RouteArgs& args, RouteRow& row, std::int64_t token) {
  __shared__ float maxima[kRouteThreads / 32];
  constexpr int kOwn = kMostRouted / kRouteThreads;
  const std::int32_t experts = args.shape.experts;
  const int thread = static_cast<int>(threadIdx.x);
  const bool none = args.token_ids != nullptr && args.token_ids[token] < 0;
  float own[kOwn];
  float most = -INFINITY;
  bool bad = none;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int e = thread + i * kRouteThreads;
    if (e >= experts) break;
    own[i] = kLoaded ? row.scores[e] : args.logits[token * experts + e];
    row.ranks[e] = 0;
    bad = bad || !isfinite(own[i]);
    most = fmaxf(most, own[i]);
  }
  for (int i = thread; i < args.shape.top_k; i += kRouteThreads) row.ids[i] = -1;
  for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0U, most, step));
  if (thread % 32 == 0) maxima[thread / 32] = most;
  if (__syncthreads_or(bad ? 1 : 0) != 0) {
    if (thread < 32) refuse_token(args, token, none);
    return;
  }
#pragma unroll
  for (const float other : maxima) most = fmaxf(most, other);
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int e = thread + i * kRouteThreads;
    if (e < experts) row.scores[e] = own[i] = route_score(args.shape.score, own[i], most);
  }
  float divisor = 1.0F;
  if (args.shape.score == RouteScore::softmax) {
    __syncthreads();
    divisor = sum_scores(args, row);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int e = thread + i * kRouteThreads;
    if (e < experts) put_score(args, row, e, own[i] / divisor);
  }
  __syncthreads();
  if (args.shape.groups_by != RouteGroups::none && args.shape.groups > 1) {
    if (thread < 32) keep_best_groups(args, row);
    __syncthreads();
  }
  if (args.fixed_ids == nullptr) rank_by_block(args, row);
  if (thread < 32 && args.fixed_ids != nullptr) choose(args, row, token);
  __syncthreads();
  if (thread < 32) finish_token(args, row, token);
}

}  // namespace moracle::cuda
