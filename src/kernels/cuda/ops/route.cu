// The choice of experts: router logits, and what a token takes of them.
#include <cooperative_groups.h>

#include "kernels/cuda/arithmetic.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops/block.cuh"

namespace moracle::cuda {

namespace {

constexpr int kThreads = 256;
constexpr float kLowest = -3.402823466e38F;

// Logits of kTokens tokens and kExperts experts, by a warp: rows beyond the last are the last again, and nothing of
// them is written. Lane l sums columns l, l + 32, ..., and lanes are added in one order: the bits of a logit are the
// same for any tile. `first_row`: inputs of the first token, which the others' follow.
template <int kTokens, int kExperts, int kUnrolled>
__device__ __forceinline__ void multiply_tile(const RouteArgs& args, const float* first_row, std::int64_t token,
                                              std::int64_t expert) {
  const std::int64_t experts = args.shape.experts;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float* x[kTokens];
  const float* weight[kExperts];
#pragma unroll
  for (int t = 0; t < kTokens; ++t) x[t] = first_row + min(std::int64_t{t}, args.tokens - 1 - token) * args.hidden;
#pragma unroll
  for (int e = 0; e < kExperts; ++e) weight[e] = args.router + min(expert + e, experts - 1) * args.hidden;
  float sums[kTokens][kExperts] = {};
#pragma unroll kUnrolled
  for (std::int64_t k = lane; k < args.hidden; k += 32) {
    float inputs[kTokens];
    float weights[kExperts];
#pragma unroll
    for (int t = 0; t < kTokens; ++t) inputs[t] = x[t][k];
#pragma unroll
    for (int e = 0; e < kExperts; ++e) weights[e] = weight[e][k];
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
#pragma unroll
      for (int e = 0; e < kExperts; ++e) sums[t][e] = fmaf(inputs[t], weights[e], sums[t][e]);
    }
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
#pragma unroll
    for (int e = 0; e < kExperts; ++e) {
      const float sum = warp_sum(sums[t][e]);
      if (lane != 0 || token + t >= args.tokens || expert + e >= experts) continue;
      args.logits[(token + t) * experts + expert + e] =
          args.router_bias != nullptr ? sum + args.router_bias[expert + e] : sum;
    }
  }
}

constexpr int kTileTokens = 8;
constexpr int kTileExperts = 4;

__global__ void __launch_bounds__(kThreads) router(const __grid_constant__ RouteArgs args) {
  const std::int64_t tiles = (args.shape.experts + kTileExperts - 1) / kTileExperts;
  const std::int64_t task = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / 32;
  const std::int64_t token = task / tiles * kTileTokens;
  if (token >= args.tokens) return;
  multiply_tile<kTileTokens, kTileExperts, 2>(args, args.x + token * args.hidden, token, task % tiles * kTileExperts);
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

struct RouteRow {
  float scores[kMostRouted];
  float choice[kMostRouted];
  bool taken[kMostRouted];
  std::int32_t ids[kMostRouted];
  float weights[kMostRouted];  // before, scores of groups
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
    row.weights[g] = args.shape.groups_by == RouteGroups::best || width < 2 ? first : first + second;
    row.taken[g] = false;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int n = 0; n < args.shape.top_groups; ++n) {
      Ranked<float> best{0.0F, -1};
      for (int g = 0; g < args.shape.groups; ++g) {
        if (!row.taken[g]) best = better(best, {row.weights[g], g});
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

__device__ void weigh(const RouteArgs& args, RouteRow& row, const float* logits) {
  const std::int32_t* const ids = row.ids;
  float* const weights = row.weights;
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

// Of one token, by a block. Choices are a warp's: none of its rounds waits for other warps.
__device__ void route_token(const RouteArgs& args, RouteRow& row, std::int64_t token) {
  const std::int32_t top_k = args.shape.top_k;
  const float* const logits = args.logits + token * args.shape.experts;
  std::int32_t* const ids = args.ids + token * top_k;
  float* const weights = args.weights + token * top_k;
  const bool none = args.token_ids != nullptr && args.token_ids[token] < 0;
  Ranked<float> top{0.0F, -1};
  bool bad = none;
  for (int e = static_cast<int>(threadIdx.x); e < args.shape.experts; e += kThreads) {
    bad = bad || !isfinite(logits[e]);
    top = better(top, {logits[e], e});
  }
  if (__syncthreads_or(bad ? 1 : 0) != 0) {
    for (int i = static_cast<int>(threadIdx.x); i < top_k; i += kThreads) {
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
  if (threadIdx.x >= 32) return;
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = 0; i < top_k; ++i) {
    int id = -1;
    if (args.fixed_ids != nullptr) {
      id = args.fixed_ids[static_cast<std::int64_t>(args.token_ids[token]) * top_k + i];
      if (id < 0 || id >= args.shape.experts) id = -1;
    } else {
      Ranked<float> best{0.0F, -1};
      for (int e = lane; e < args.shape.experts; e += 32) {
        if (!row.taken[e]) best = better(best, {row.choice[e], e});
      }
      id = warp_best(best).index;
    }
    if (lane == 0) {
      row.ids[i] = id;
      if (id >= 0) row.taken[id] = true;
    }
    __syncwarp();
  }
  if (lane == 0) weigh(args, row, logits);
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

__global__ void __launch_bounds__(kThreads) route(const __grid_constant__ RouteArgs args) {
  __shared__ RouteRow row;
  route_token(args, row, blockIdx.x);
}

// Blocks of a cluster share a token's logits, of which the first block chooses.
constexpr int kClusterBlocks = 8;
constexpr int kFewExperts = 2;              // of a warp at a time
constexpr std::int64_t kMostNormed = 7168;  // columns of a row in shared memory
static_assert(sizeof(RouteRow) + kMostNormed * sizeof(float) <= 47 * 1024, "shared memory that needs no request");

// A token's row as add_norm makes it, with the same bits; nothing is written to memory.
__device__ void make_row(const AddNormArgs& norm, std::int64_t token, float* row) {
  const float* const x = norm.x + token * norm.cols;
  const float* const sum = norm.sum + token * norm.cols;
  float squares = 0.0F;
  for (int k = static_cast<int>(threadIdx.x); k < norm.cols; k += kThreads) {
    const float added = sum[k] + x[k];
    row[k] = added;
    squares = fmaf(added, added, squares);
  }
  const float scale = 1.0F / sqrtf(block_sum<kThreads>(squares) / static_cast<float>(norm.cols) + norm.eps);
  for (int k = static_cast<int>(threadIdx.x); k < norm.cols; k += kThreads) row[k] = row[k] * scale * norm.weight[k];
  __syncthreads();
}

// Each block its share of the columns, once all blocks have read what is overwritten.
__device__ void write_row(const AddNormArgs& norm, std::int64_t token, int rank, const float* row) {
  const std::int64_t first = token * norm.cols;
  for (int k = rank * kThreads + static_cast<int>(threadIdx.x); k < norm.cols; k += kClusterBlocks * kThreads) {
    norm.sum[first + k] += norm.x[first + k];
    norm.out[first + k] = row[k];
  }
}

__global__ void __cluster_dims__(kClusterBlocks, 1, 1) __launch_bounds__(kThreads, 1)
    route_few(const __grid_constant__ RouteArgs args) {
  __shared__ RouteRow row;
  extern __shared__ float normed[];
  const std::int64_t token = blockIdx.x / kClusterBlocks;
  const int rank = static_cast<int>(blockIdx.x) % kClusterBlocks;
  const int warp = rank * (kThreads / 32) + static_cast<int>(threadIdx.x) / 32;
  const bool norms = args.norm.x != nullptr;
  if (norms) make_row(args.norm, token, normed);
  const float* const x = norms ? normed : args.x + token * args.hidden;
  for (int expert = warp * kFewExperts; expert < args.shape.experts;
       expert += kClusterBlocks * (kThreads / 32) * kFewExperts) {
    multiply_tile<1, kFewExperts, 16>(args, x, token, expert);
  }
  // The barrier of a cluster orders what its threads wrote to memory before what they read behind it.
  cooperative_groups::this_cluster().sync();
  if (norms) write_row(args.norm, token, rank, normed);
  if (rank == 0) route_token(args, row, token);
}

// Tokens from which on tiles of several keep all multiprocessors at work.
constexpr std::int64_t kTiledTokens = 64;

}  // namespace

int launch(const RouteArgs& args, std::byte* workspace, cudaStream_t stream) {
  if (args.shape.experts > kMostRouted) return cudaErrorInvalidValue;
  if (args.tokens == 0) return cudaSuccess;
  const bool few = args.x != nullptr && args.tokens < kTiledTokens;
  if (args.norm.x != nullptr && !(few && args.norm.cols <= kMostNormed)) {
    RouteArgs rest = args;
    rest.norm.x = nullptr;
    const int error = launch(args.norm, workspace, stream);
    return error != cudaSuccess ? error : launch(rest, workspace, stream);
  }
  if (few) {
    const std::size_t normed = args.norm.x != nullptr ? static_cast<std::size_t>(args.norm.cols) * sizeof(float) : 0;
    route_few<<<grid_of(std::int64_t{args.tokens} * kClusterBlocks), kThreads, normed, stream>>>(args);
    return cudaGetLastError();
  }
  if (args.x != nullptr) {
    const std::int64_t tiles = (args.shape.experts + kTileExperts - 1) / kTileExperts;
    const std::int64_t warps = (args.tokens + kTileTokens - 1) / kTileTokens * tiles;
    router<<<grid_of(warps, kThreads / 32), kThreads, 0, stream>>>(args);
  }
  route<<<grid_of(args.tokens), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace moracle::cuda
