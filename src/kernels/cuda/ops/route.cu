// The choice of experts: router logits, and what a token takes of them.
#include <cooperative_groups.h>

#include "kernels/cuda/arithmetic.h"
#include "kernels/cuda/attention/mma.cuh"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops/norm.cuh"

namespace moracle::cuda {

namespace {

constexpr int kThreads = 256;
constexpr float kLowest = -3.402823466e38F;
constexpr int kLaneColumns = 4;                  // neighbours
constexpr int kStepColumns = 32 * kLaneColumns;  // of a warp

// Columns [k, k + 4) of a row, zeros behind the last. `whole`: rows may be read 16 bytes at a time.
__device__ __forceinline__ float4 load_four(const float* row, std::int64_t k, std::int64_t cols, bool whole) {
  if (k >= cols) return {};
  if (whole) return *reinterpret_cast<const float4*>(row + k);
  return {row[k], k + 1 < cols ? row[k + 1] : 0.0F, k + 2 < cols ? row[k + 2] : 0.0F, k + 3 < cols ? row[k + 3] : 0.0F};
}
__device__ __forceinline__ void add_products(float& sum, const float4& x, const float4& weight) {
  sum = fmaf(x.x, weight.x, sum);
  sum = fmaf(x.y, weight.y, sum);
  sum = fmaf(x.z, weight.z, sum);
  sum = fmaf(x.w, weight.w, sum);
}
MORACLE_BOTH bool whole_fours(const RouteArgs& args) {
  return args.hidden % kLaneColumns == 0 && reinterpret_cast<std::uintptr_t>(args.router) % 16 == 0 &&
         reinterpret_cast<std::uintptr_t>(args.x) % 16 == 0;
}
__device__ __forceinline__ float store_logit(const RouteArgs& args, std::int64_t token, std::int64_t expert,
                                             float sum) {
  if (args.router_bias != nullptr) sum += args.router_bias[expert];
  args.logits[token * args.shape.experts + expert] = sum;
  return sum;
}

// Logits of kTileTokens tokens and kTileExperts experts, by a warp: rows beyond the last are the last again, and
// nothing of them is written. Lane l sums columns 4 l to 4 l + 3 of every 128, and lanes are added in one order: the
// bits of a logit are the same for any tile.
constexpr int kTileTokens = 8;
constexpr int kTileExperts = 4;

__global__ void __launch_bounds__(kThreads) router(const __grid_constant__ RouteArgs args) {
  const std::int64_t experts = args.shape.experts;
  const std::int64_t tiles = (experts + kTileExperts - 1) / kTileExperts;
  const std::int64_t task = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / 32;
  const std::int64_t token = task / tiles * kTileTokens;
  const std::int64_t expert = task % tiles * kTileExperts;
  if (token >= args.tokens) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool whole = whole_fours(args);
  float sums[kTileTokens][kTileExperts] = {};
#pragma unroll 1
  for (std::int64_t k = kLaneColumns * lane; k < args.hidden; k += kStepColumns) {
    float4 inputs[kTileTokens];
    float4 weights[kTileExperts];
#pragma unroll
    for (int t = 0; t < kTileTokens; ++t)
      inputs[t] =
          load_four(args.x + min(token + t, std::int64_t{args.tokens} - 1) * args.hidden, k, args.hidden, whole);
#pragma unroll
    for (int e = 0; e < kTileExperts; ++e)
      weights[e] = load_four(args.router + min(expert + e, experts - 1) * args.hidden, k, args.hidden, whole);
#pragma unroll
    for (int t = 0; t < kTileTokens; ++t) {
#pragma unroll
      for (int e = 0; e < kTileExperts; ++e) add_products(sums[t][e], inputs[t], weights[e]);
    }
  }
#pragma unroll
  for (int t = 0; t < kTileTokens; ++t) {
#pragma unroll
    for (int e = 0; e < kTileExperts; ++e) {
      const float sum = warp_sum(sums[t][e]);
      if (lane == 0 && token + t < args.tokens && expert + e < experts) store_logit(args, token + t, expert + e, sum);
    }
  }
}

// The same by way of shared memory, of rows that are read 16 bytes at a time: a stage has 128 columns of the block's
// tokens and experts, which are copied kRouterStages - 1 stages ahead. A warp takes kWarpRows of each.
constexpr int kWarpRows = 8;
constexpr int kRouterStages = 4;
template <int kTokenWarps_, int kExpertWarps_>
struct RouterPlan {
  static constexpr int kExpertWarps = kExpertWarps_;
  static constexpr int kThreads = 32 * kTokenWarps_ * kExpertWarps;
  static constexpr int kTokens = kWarpRows * kTokenWarps_;
  static constexpr int kExperts = kWarpRows * kExpertWarps;
  static constexpr int kStageFours = (kTokens + kExperts) * 32;
  static constexpr int kBytes = kRouterStages * kStageFours * static_cast<int>(sizeof(float4));
};

// What a warp copies: rows of tokens and experts, 16 bytes a lane.
template <class Plan>
class RouterCopies {
 public:
  __device__ RouterCopies(const RouteArgs& args, std::int64_t token, std::int64_t expert)
      : any_(args.router), left_(args.hidden - kLaneColumns * lane()), to_(warp() * 32 + lane()) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = warp() + kWarps * i;
      from_[i] =
          kLaneColumns * lane() +
          (row < Plan::kTokens
               ? args.x + min(token + row, std::int64_t{args.tokens} - 1) * args.hidden
               : args.router + min(expert + row - Plan::kTokens, std::int64_t{args.shape.experts} - 1) * args.hidden);
    }
  }
  // The next 128 columns.
  __device__ __forceinline__ void copy(float4* stage) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      copy_async(stage + to_ + kWarps * 32 * i, left_ > 0 ? from_[i] : any_, left_ > 0);
      from_[i] += kStepColumns;
    }
    left_ -= kStepColumns;
  }

 private:
  static constexpr int kWarps = Plan::kThreads / 32;
  static constexpr int kRows = (Plan::kTokens + Plan::kExperts) / kWarps;

  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ int warp() { return static_cast<int>(threadIdx.x) / 32; }

  const float* from_[kRows];
  const float* any_;
  std::int64_t left_;  // columns from this lane's on
  int to_;
};

template <class Plan>
__global__ void __launch_bounds__(Plan::kThreads) router_tiles(const __grid_constant__ RouteArgs args) {
  extern __shared__ __align__(16) float4 router_stages[];
  allow_next_grid();
  wait_for_last_grid();
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.y) * Plan::kTokens;
  const std::int64_t expert = static_cast<std::int64_t>(blockIdx.x) * Plan::kExperts;
  const auto steps = static_cast<int>((args.hidden + kStepColumns - 1) / kStepColumns);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int own_token = warp / Plan::kExpertWarps * kWarpRows;
  const int own_expert = warp % Plan::kExpertWarps * kWarpRows;
  RouterCopies<Plan> copies(args, token, expert);
  for (int step = 0; step + 1 < kRouterStages; ++step) {
    if (step < steps) copies.copy(router_stages + step * Plan::kStageFours);
    commit_copies();
  }
  float sums[kWarpRows][kWarpRows] = {};
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    wait_copies<kRouterStages - 2>();
    __syncthreads();
    const int next = step + kRouterStages - 1;
    if (next < steps) copies.copy(router_stages + next % kRouterStages * Plan::kStageFours);
    commit_copies();
    const float4* const stage = router_stages + step % kRouterStages * Plan::kStageFours + lane;
    float4 inputs[kWarpRows];
#pragma unroll
    for (int t = 0; t < kWarpRows; ++t) inputs[t] = stage[(own_token + t) * 32];
#pragma unroll
    for (int e = 0; e < kWarpRows; ++e) {
      const float4 weights = stage[(Plan::kTokens + own_expert + e) * 32];
#pragma unroll
      for (int t = 0; t < kWarpRows; ++t) add_products(sums[t][e], inputs[t], weights);
    }
  }
#pragma unroll
  for (int t = 0; t < kWarpRows; ++t) {
#pragma unroll
    for (int e = 0; e < kWarpRows; ++e) {
      const float sum = warp_sum(sums[t][e]);
      const std::int64_t to_token = token + own_token + t;
      const std::int64_t to_expert = expert + own_expert + e;
      if (lane == 0 && to_token < args.tokens && to_expert < args.shape.experts)
        store_logit(args, to_token, to_expert, sum);
    }
  }
}

template <class Plan>
cudaError_t launch_router(const RouteArgs& args, cudaStream_t stream) {
  auto* const kernel = router_tiles<Plan>;
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kBytes);
      error != cudaSuccess)
    return error;
  return launch_grid(kernel,
                     {.grid = dim3(grid_of(args.shape.experts, Plan::kExperts), grid_of(args.tokens, Plan::kTokens)),
                      .threads = static_cast<unsigned>(Plan::kThreads),
                      .shared = Plan::kBytes},
                     stream, args);
}

__device__ float route_score(RouteScore score, float logit, float top) {
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

// What a warp holds of a token.
struct RouteRow {
  float scores[kMostRouted];
  float choice[kMostRouted];
  bool taken[kMostRouted];  // of groups
  float groups[kMostRouted];
  std::int32_t ids[kMostRouted];
  float weights[kMostRouted];
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
__device__ void keep_best_groups(const RouteArgs& args, RouteRow& row) {
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

__device__ void weigh(const RouteArgs& args, RouteRow& row, const float* logits) {
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

// Of one token, by a warp. kLoaded: its logits are the row's scores.
template <bool kLoaded>
__device__ void route_token(const RouteArgs& args, RouteRow& row, std::int64_t token) {
  const std::int32_t experts = args.shape.experts;
  const std::int32_t top_k = args.shape.top_k;
  const float* const logits = args.logits + token * experts;
  std::int32_t* const ids = args.ids + token * top_k;
  float* const weights = args.weights + token * top_k;
  const int lane = lane_of();
  const bool none = args.token_ids != nullptr && args.token_ids[token] < 0;
  float most = -INFINITY;
  bool bad = none;
  for (int e = lane; e < experts; e += 32) {
    if constexpr (!kLoaded) row.scores[e] = logits[e];
    const float logit = row.scores[e];
    bad = bad || !isfinite(logit);
    most = fmaxf(most, logit);
  }
  if (__any_sync(~0U, bad ? 1 : 0) != 0) {
    for (int i = lane; i < top_k; i += 32) {
      ids[i] = -1;
      weights[i] = 0.0F;
    }
    if (lane == 0 && !none && args.bad_layer != nullptr) args.bad_layer[token] = min(args.bad_layer[token], args.layer);
    return;
  }
  for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0U, most, step));
  float sum = 0.0F;
  for (int e = lane; e < experts; e += 32) {
    row.scores[e] = route_score(args.shape.score, row.scores[e], most);
    sum += row.scores[e];
  }
  const float divisor = args.shape.score == RouteScore::softmax ? warp_sum(sum) : 1.0F;
  for (int e = lane; e < experts; e += 32) {
    row.scores[e] /= divisor;
    row.choice[e] = row.scores[e] + (args.bias != nullptr ? args.bias[e] : 0.0F);
  }
  __syncwarp();
  if (args.shape.groups_by != RouteGroups::none && args.shape.groups > 1) keep_best_groups(args, row);
  choose(args, row, token);
  __syncwarp();
  weigh(args, row, logits);
  __syncwarp();
  std::uint32_t* const counts = args.counts == nullptr || args.count_rows[token] < 0
                                    ? nullptr
                                    : args.counts + args.count_rows[token] * args.count_stride;
  for (int i = lane; i < top_k; i += 32) {
    ids[i] = row.ids[i];
    weights[i] = row.weights[i];
    if (counts != nullptr && row.ids[i] >= 0) atomicAdd(counts + row.ids[i], 1U);
  }
}

// A warp a token, one in a block: few tokens find all multiprocessors.
__global__ void __launch_bounds__(32) route(const __grid_constant__ RouteArgs args) {
  __shared__ RouteRow row;
  allow_next_grid();
  wait_for_last_grid();
  route_token<false>(args, row, blockIdx.x);
}

// Blocks of a cluster share the logits of a token, each the experts of its warps; then the first one chooses.
constexpr int kFewThreads = kNormThreads;
constexpr int kHeldSteps = 16;              // of the first experts' columns, which are fetched first
constexpr std::int64_t kMostNormed = 7168;  // columns of a row in shared memory

// A token's row as add_norm makes it, with the same bits, by kNormThreads; nothing is written to memory.
__device__ __forceinline__ void make_row(const AddNormArgs& norm, std::int64_t token, float* row) {
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t cols = norm.cols;
  const float* const x = norm.x + token * cols;
  const float* const sum = norm.sum + token * cols;
  if (by_fours(norm)) {
    HeldRow held;
    held.load(thread, cols, x);
    held.add(thread, cols, sum);
    const float scale = norm_scale(held.squares(thread, cols), cols, norm.eps);
    held.each(thread, cols, [&](const float4& four, int at) {
      reinterpret_cast<float4*>(row)[at] = scaled(four, scale, reinterpret_cast<const float4*>(norm.weight)[at]);
    });
    return;
  }
  float squares = 0.0F;
  for (std::int64_t k = thread; k < cols; k += kNormThreads) {
    const float added = sum[k] + x[k];
    row[k] = added;
    squares = fmaf(added, added, squares);
  }
  const float scale = norm_scale(squares, cols, norm.eps);
  for (std::int64_t k = thread; k < cols; k += kNormThreads) row[k] = row[k] * scale * norm.weight[k];
}

// The row that a router multiplies, in shared memory.
__device__ __forceinline__ void load_row(const RouteArgs& args, std::int64_t token, float* row) {
  if (args.norm.x != nullptr) return make_row(args.norm, token, row);
  const float* const x = args.x + token * args.hidden;
  if (by_fours(args.hidden, x)) {
    HeldRow held;
    held.load(static_cast<int>(threadIdx.x), args.hidden, x);
    held.each(static_cast<int>(threadIdx.x), args.hidden,
              [&](const float4& four, int at) { reinterpret_cast<float4*>(row)[at] = four; });
    return;
  }
  for (std::int64_t k = threadIdx.x; k < args.hidden; k += kFewThreads) row[k] = x[k];
}

// Each block its share of the columns, once all blocks have read what is overwritten.
template <int kBlocks>
__device__ void write_row(const AddNormArgs& norm, std::int64_t token, int rank, const float* row) {
  const std::int64_t first = token * norm.cols;
  for (int k = rank * kFewThreads + static_cast<int>(threadIdx.x); k < norm.cols; k += kBlocks * kFewThreads) {
    norm.sum[first + k] += norm.x[first + k];
    norm.out[first + k] = row[k];
  }
}

// Experts of a warp.
template <int kExperts>
struct HeldExperts {
  float4 fours[kExperts][kHeldSteps];

  __device__ __forceinline__ void load(const RouteArgs& args, std::int64_t expert, bool whole) {
#pragma unroll
    for (int e = 0; e < kExperts; ++e) {
#pragma unroll
      for (int step = 0; step < kHeldSteps; ++step) fours[e][step] = load_step(args, expert + e, step, whole);
    }
  }
  [[nodiscard]] static __device__ __forceinline__ float4 load_step(const RouteArgs& args, std::int64_t expert,
                                                                   std::int64_t step, bool whole) {
    const std::int64_t row = min(expert, std::int64_t{args.shape.experts} - 1);
    return load_four(args.router + row * args.hidden, step * kStepColumns + kLaneColumns * lane_of(), args.hidden,
                     whole);
  }
};

// Their logits, which the first block gets as its scores. `row`: [hidden] in shared memory.
template <int kExperts, bool kHeld>
__device__ __forceinline__ void multiply_row(const RouteArgs& args, const HeldExperts<kExperts>& held, const float* row,
                                             std::int64_t token, std::int64_t expert, bool whole, float* scores) {
  const bool whole_row = args.hidden % kLaneColumns == 0;
  float sums[kExperts] = {};
  const auto add = [&](std::int64_t step, const float4(&weights)[kExperts]) {
    const float4 x = load_four(row, step * kStepColumns + kLaneColumns * lane_of(), args.hidden, whole_row);
#pragma unroll
    for (int e = 0; e < kExperts; ++e) add_products(sums[e], x, weights[e]);
  };
  if constexpr (kHeld) {
#pragma unroll
    for (int step = 0; step < kHeldSteps; ++step) {
      if (step * kStepColumns >= args.hidden) break;
      float4 weights[kExperts];
#pragma unroll
      for (int e = 0; e < kExperts; ++e) weights[e] = held.fours[e][step];
      add(step, weights);
    }
  }
#pragma unroll 8
  for (std::int64_t step = kHeld ? kHeldSteps : 0; step * kStepColumns < args.hidden; ++step) {
    float4 weights[kExperts];
#pragma unroll
    for (int e = 0; e < kExperts; ++e) weights[e] = HeldExperts<kExperts>::load_step(args, expert + e, step, whole);
    add(step, weights);
  }
  float* const first = cooperative_groups::this_cluster().map_shared_rank(scores, 0);
#pragma unroll
  for (int e = 0; e < kExperts; ++e) {
    const float sum = warp_sum(sums[e]);
    if (lane_of() == 0 && expert + e < args.shape.experts)
      first[expert + e] = store_logit(args, token, expert + e, sum);
  }
}

// Clusters of kBlocks, a token each.
template <int kBlocks, int kExperts>
__global__ void __launch_bounds__(kFewThreads, 1) route_few(const __grid_constant__ RouteArgs args) {
  __shared__ RouteRow choice;
  extern __shared__ __align__(16) float row[];
  allow_next_grid();
  const std::int64_t token = blockIdx.x / kBlocks;
  const int rank = static_cast<int>(blockIdx.x) % kBlocks;
  const int warp = rank * (kFewThreads / 32) + static_cast<int>(threadIdx.x) / 32;
  constexpr int kStep = kBlocks * (kFewThreads / 32) * kExperts;
  const bool whole = whole_fours(args);
  constexpr bool kHeld = kExperts == 1;  // else there are no registers for weights ahead
  HeldExperts<kExperts> held;
  if constexpr (kHeld) held.load(args, warp * kExperts, whole);
  auto cluster = cooperative_groups::this_cluster();
  cluster.sync();  // all blocks have begun: their shared memory can be written
  wait_for_last_grid();
  load_row(args, token, row);
  __syncthreads();
  for (std::int64_t expert = warp * kExperts; expert < args.shape.experts; expert += kStep) {
    if (kHeld && expert >= kStep) held.load(args, expert, whole);
    multiply_row<kExperts, kHeld>(args, held, row, token, expert, whole, choice.scores);
  }
  // The barrier of a cluster orders what its threads wrote to memory before what they read behind it.
  cluster.sync();
  if (args.norm.x != nullptr) write_row<kBlocks>(args.norm, token, rank, row);
  if (rank == 0 && threadIdx.x < 32) route_token<true>(args, choice, token);
}

// Tokens up to which each has a cluster, and a tile of the router few of them.
constexpr std::int64_t kHurriedTokens = 2;  // whose clusters are twice as large
constexpr std::int64_t kAloneTokens = 16;
constexpr std::int64_t kSmallTiles = 128;

template <int kBlocks, int kExperts>
cudaError_t launch_few(const RouteArgs& args, cudaStream_t stream) {
  const auto bytes = static_cast<std::size_t>(args.hidden) * sizeof(float);
  auto* const kernel = route_few<kBlocks, kExperts>;
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                     static_cast<int>(kMostNormed * std::int64_t{sizeof(float)}));
      error != cudaSuccess)
    return error;
  if (const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
      error != cudaSuccess)
    return error;
  return launch_grid(kernel,
                     {.grid = dim3(grid_of(args.tokens) * static_cast<unsigned>(kBlocks)),
                      .threads = kFewThreads,
                      .shared = bytes,
                      .cluster = dim3(kBlocks)},
                     stream, args);
}

}  // namespace

int launch(const RouteArgs& args, std::byte* workspace, cudaStream_t stream) {
  if (args.shape.experts > kMostRouted) return cudaErrorInvalidValue;
  if (args.tokens == 0) return cudaSuccess;
  if (args.x != nullptr && args.tokens <= kAloneTokens && args.hidden <= kMostNormed)
    return args.tokens <= kHurriedTokens ? launch_few<16, 1>(args, stream) : launch_few<8, 2>(args, stream);
  if (args.norm.x != nullptr) {
    RouteArgs rest = args;
    rest.norm.x = nullptr;
    const int error = launch(args.norm, workspace, stream);
    return error != cudaSuccess ? error : launch(rest, workspace, stream);
  }
  if (args.x != nullptr && whole_fours(args)) {
    const cudaError_t error = args.tokens <= kSmallTiles ? launch_router<RouterPlan<1, 1>>(args, stream)
                                                         : launch_router<RouterPlan<4, 4>>(args, stream);
    if (error != cudaSuccess) return error;
  } else if (args.x != nullptr) {
    const std::int64_t tiles = (args.shape.experts + kTileExperts - 1) / kTileExperts;
    const std::int64_t warps = (args.tokens + kTileTokens - 1) / kTileTokens * tiles;
    router<<<grid_of(warps, kThreads / 32), kThreads, 0, stream>>>(args);
  }
  return launch_grid(route, {.grid = dim3(grid_of(args.tokens)), .threads = 32}, stream, args);
}

}  // namespace moracle::cuda
