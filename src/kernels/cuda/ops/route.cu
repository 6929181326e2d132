// The choice of experts: router logits, and what a token takes of them.
#include "kernels/cuda/arithmetic.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops/block.cuh"

namespace moracle::cuda {

namespace {

constexpr int kThreads = 256;
constexpr float kLowest = -3.402823466e38F;

// A warp multiplies kTokens rows of inputs and kExperts rows of weights. Lane l sums columns l, l + 32, ..., and lanes
// are added in one order: the bits of a logit are the same for any tile.
template <int kTokens, int kExperts>
__global__ void __launch_bounds__(kThreads) router(const __grid_constant__ RouterArgs args) {
  const std::int64_t tiles = (args.experts + kExperts - 1) / kExperts;
  const std::int64_t task = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t token = task / tiles * kTokens;
  const std::int64_t expert = task % tiles * kExperts;
  if (token >= args.tokens) return;
  const float* x[kTokens];
  const float* weight[kExperts];
  // Rows beyond the last are the last again; nothing of them is written.
  for (int t = 0; t < kTokens; ++t) x[t] = args.x + min(token + t, args.tokens - 1) * args.hidden;
  for (int e = 0; e < kExperts; ++e) weight[e] = args.weight + min(expert + e, args.experts - 1) * args.hidden;
  float sums[kTokens][kExperts] = {};
#pragma unroll(kTokens* kExperts == 1 ? 8 : 2)
  for (std::int64_t k = lane; k < args.hidden; k += 32) {
    float inputs[kTokens];
    float weights[kExperts];
    for (int t = 0; t < kTokens; ++t) inputs[t] = x[t][k];
    for (int e = 0; e < kExperts; ++e) weights[e] = weight[e][k];
    for (int t = 0; t < kTokens; ++t) {
      for (int e = 0; e < kExperts; ++e) sums[t][e] = fmaf(inputs[t], weights[e], sums[t][e]);
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    for (int e = 0; e < kExperts; ++e) {
      const float sum = warp_sum(sums[t][e]);
      if (lane != 0 || token + t >= args.tokens || expert + e >= args.experts) continue;
      args.logits[(token + t) * args.experts + expert + e] = args.bias != nullptr ? sum + args.bias[expert + e] : sum;
    }
  }
}

template <int kTokens, int kExperts>
void launch_router(const RouterArgs& args, cudaStream_t stream) {
  const std::int64_t warps = ((args.tokens + kTokens - 1) / kTokens) * ((args.experts + kExperts - 1) / kExperts);
  router<kTokens, kExperts><<<grid_of(warps, kThreads / 32), kThreads, 0, stream>>>(args);
}
// Tokens from which a call has tiles for every multiprocessor.
constexpr std::int64_t kTiledTokens = 64;

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

struct RouteRow {
  float scores[kMostRouted];
  float choice[kMostRouted];
  float groups[kMostRouted];
  bool taken[kMostRouted];
};

// Puts experts outside the best groups out of the running.
__device__ void keep_best_groups(const RouteArgs& args, RouteRow& row) {
  const int width = args.shape.experts / args.shape.groups;
  for (int g = static_cast<int>(threadIdx.x); g < args.shape.groups; g += kThreads) {
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
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int n = 0; n < args.shape.top_groups; ++n) {
      Ranked<float> best{0.0F, -1};
      for (int g = 0; g < args.shape.groups; ++g) {
        if (!row.taken[g]) best = better(best, {row.groups[g], g});
      }
      if (best.index >= 0) row.taken[best.index] = true;
    }
  }
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < args.shape.experts; e += kThreads) {
    if (!row.taken[e / width]) row.choice[e] = -INFINITY;
  }
  __syncthreads();
}

__device__ void weigh(const RouteArgs& args, const RouteRow& row, const float* logits, const std::int32_t* ids,
                      float* weights) {
  int taken = 0;
  while (taken < args.shape.top_k && ids[taken] >= 0) ++taken;
  for (int i = 0; i < args.shape.top_k; ++i) {
    weights[i] = ids[i] < 0                                           ? 0.0F
                 : args.shape.weight == RouteWeight::sigmoid_of_logit ? sigmoid(logits[ids[i]])
                                                                      : row.scores[ids[i]];
  }
  if (args.shape.weight == RouteWeight::softmax_of_chosen && taken > 0) {
    float top = weights[0];
    for (int i = 1; i < taken; ++i) top = fmaxf(top, weights[i]);
    float sum = 0.0F;
    for (int i = 0; i < taken; ++i) {
      weights[i] = expf(weights[i] - top);
      sum += weights[i];
    }
    for (int i = 0; i < taken; ++i) weights[i] /= sum;
  }
  float divisor = 1.0F;
  if (args.shape.renormalize != 0) {
    float sum = 0.0F;
    for (int i = 0; i < args.shape.top_k; ++i) sum += weights[i];
    if (sum > 0.0F) divisor = sum;
  }
  for (int i = 0; i < args.shape.top_k; ++i) weights[i] = weights[i] / divisor * args.shape.factor;
}

__global__ void __launch_bounds__(kThreads) route(const __grid_constant__ RouteArgs args) {
  __shared__ RouteRow row;
  const std::int64_t token = blockIdx.x;
  const float* const logits = args.logits + token * args.shape.experts;
  std::int32_t* const ids = args.ids + token * args.shape.top_k;
  float* const weights = args.weights + token * args.shape.top_k;
  const bool none = args.token_ids != nullptr && args.token_ids[token] < 0;
  Ranked<float> top{0.0F, -1};
  bool bad = none;
  for (int e = static_cast<int>(threadIdx.x); e < args.shape.experts; e += kThreads) {
    bad = bad || !isfinite(logits[e]);
    top = better(top, {logits[e], e});
  }
  if (__syncthreads_or(bad ? 1 : 0) != 0) {
    for (int i = static_cast<int>(threadIdx.x); i < args.shape.top_k; i += kThreads) {
      ids[i] = -1;
      weights[i] = 0.0F;
    }
    if (threadIdx.x == 0 && !none && args.bad_layer != nullptr)
      args.bad_layer[token] = min(args.bad_layer[token], args.layer);
    return;
  }
  const float most = block_best<kThreads>(top).value;
  float sum = 0.0F;
  for (int e = static_cast<int>(threadIdx.x); e < args.shape.experts; e += kThreads) {
    row.scores[e] = route_score(args.shape.score, logits[e], most);
    sum += row.scores[e];
  }
  const float divisor = args.shape.score == RouteScore::softmax ? block_sum<kThreads>(sum) : 1.0F;
  for (int e = static_cast<int>(threadIdx.x); e < args.shape.experts; e += kThreads) {
    row.scores[e] /= divisor;
    row.choice[e] = row.scores[e] + (args.bias != nullptr ? args.bias[e] : 0.0F);
  }
  __syncthreads();
  if (args.shape.groups_by != RouteGroups::none && args.shape.groups > 1) keep_best_groups(args, row);
  for (int e = static_cast<int>(threadIdx.x); e < args.shape.experts; e += kThreads) row.taken[e] = false;
  __syncthreads();
  for (int i = 0; i < args.shape.top_k; ++i) {
    int id = -1;
    if (args.fixed_ids != nullptr) {
      id = args.fixed_ids[static_cast<std::int64_t>(args.token_ids[token]) * args.shape.top_k + i];
      if (id < 0 || id >= args.shape.experts) id = -1;
    } else {
      Ranked<float> best{0.0F, -1};
      for (int e = static_cast<int>(threadIdx.x); e < args.shape.experts; e += kThreads) {
        if (!row.taken[e]) best = better(best, {row.choice[e], e});
      }
      id = block_best<kThreads>(best).index;
    }
    if (threadIdx.x == 0) {
      ids[i] = id;
      if (id >= 0) row.taken[id] = true;
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) weigh(args, row, logits, ids, weights);
  if (args.counts == nullptr || args.count_rows[token] < 0) return;
  // The last round's barrier stands between the ids and their readers.
  std::uint32_t* const counts = args.counts + args.count_rows[token] * args.count_stride;
  for (int i = static_cast<int>(threadIdx.x); i < args.shape.top_k; i += kThreads) {
    if (ids[i] >= 0) atomicAdd(counts + ids[i], 1U);
  }
}

}  // namespace

int launch(const RouterArgs& args, std::byte* /*workspace*/, cudaStream_t stream) {
  if (args.tokens >= kTiledTokens) {
    launch_router<8, 4>(args, stream);
  } else if (args.tokens > 0) {
    launch_router<1, 1>(args, stream);
  }
  return cudaGetLastError();
}

int launch(const RouteArgs& args, std::byte* /*workspace*/, cudaStream_t stream) {
  if (args.shape.experts > kMostRouted) return cudaErrorInvalidValue;
  if (args.tokens > 0) route<<<grid_of(args.tokens), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace moracle::cuda
