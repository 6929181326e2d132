// The choice of experts of a few tokens, with their norm and router logits.
#include <cooperative_groups.h>

#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/ops/choice.cuh"
#include "kernels/cuda/common/ops/router.cuh"

namespace moracle::cuda {

namespace {

// Blocks of a cluster share the logits of a token, each the experts of its warps; then the first one chooses.
constexpr int kFewThreads = kRouteThreads;
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
  if (rank == 0) route_by_block<true>(args, choice, token);
  if (args.norm.x != nullptr) write_row<kBlocks>(args.norm, token, rank, row);
}

// Tokens up to which each has a cluster.
constexpr std::int64_t kHurriedTokens = 2;  // whose clusters are twice as large
constexpr std::int64_t kAloneTokens = 16;

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

bool routes_by_clusters(const RouteArgs& args) {
  return args.x != nullptr && args.tokens <= kAloneTokens && args.hidden <= kMostNormed;
}

int launch_clusters(const RouteArgs& args, cudaStream_t stream) {
  return args.tokens <= kHurriedTokens ? launch_few<16, 1>(args, stream) : launch_few<8, 2>(args, stream);
}

}  // namespace moracle::cuda
