// Router logits: lane l of a warp sums columns 4 l to 4 l + 3 of every 128, and lanes are added in one order, so that
// the bits of a logit are the same whoever computes it. Products of TF32 have an order of their own.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/common/arithmetic.h"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/ops/block.cuh"

namespace moracle::cuda {

// Those of any number of tokens, to args.logits. Returns the runtime's error of the launch.
int launch_router(const RouteArgs& args, cudaStream_t stream);
// The same by products of TF32, of rows that are read 16 bytes at a time.
int launch_router_products(const RouteArgs& args, cudaStream_t stream);
// Whether there are enough of them for all multiprocessors; else smaller tiles are done sooner.
bool takes_router_products(const RouteArgs& args);
// Few tokens by clusters, with their norm and choice.
bool routes_by_clusters(const RouteArgs& args);
int launch_clusters(const RouteArgs& args, cudaStream_t stream);

inline constexpr int kLaneColumns = 4;                  // neighbours
inline constexpr int kStepColumns = 32 * kLaneColumns;  // of a warp

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

}  // namespace moracle::cuda
