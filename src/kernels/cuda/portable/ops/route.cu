// The choice of experts: what a token takes of its logits.
#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/ops/choice.cuh"
#include "kernels/cuda/common/ops/router.cuh"

namespace moracle::cuda {

namespace {

// A block a token: few tokens find all multiprocessors.
__global__ void __launch_bounds__(kRouteThreads) route(const __grid_constant__ RouteArgs args) {
  __shared__ RouteRow row;
  allow_next_grid();
  wait_for_last_grid();
  route_by_block<false>(args, row, blockIdx.x);
}
// A warp a token, one in a block.
__global__ void __launch_bounds__(32) route_many(const __grid_constant__ RouteArgs args) {
  __shared__ RouteRow row;
  allow_next_grid();
  wait_for_last_grid();
  route_by_warp(args, row, blockIdx.x);
}

constexpr std::int64_t kManyTokens = 512;  // from which on a warp takes a token

}  // namespace

int launch(const RouteArgs& args, std::byte* workspace, cudaStream_t stream) {
  if (args.shape.experts > kMostRouted) return cudaErrorInvalidValue;
  if (args.tokens == 0) return cudaSuccess;
  if (has_sm90() && routes_by_clusters(args)) return launch_clusters(args, stream);
  if (args.norm.x != nullptr) {
    RouteArgs rest = args;
    rest.norm.x = nullptr;
    const int error = launch(args.norm, workspace, stream);
    return error != cudaSuccess ? error : launch(rest, workspace, stream);
  }
  if (args.x != nullptr) {
    if (const int error = launch_router(args, stream); error != cudaSuccess) return error;
  }
  return args.tokens <= kManyTokens
             ? launch_grid(route, {.grid = dim3(grid_of(args.tokens)), .threads = kRouteThreads}, stream, args)
             : launch_grid(route_many, {.grid = dim3(grid_of(args.tokens)), .threads = 32}, stream, args);
}

}  // namespace moracle::cuda
