// Which rows have a number that is not finite.
#include <cooperative_groups.h>

#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/common/launch.h"

namespace moracle::cuda {

namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ bool are_finite(const float* x, std::int64_t first, std::int64_t end, std::int64_t step) {
  bool bad = false;
  for (std::int64_t k = first; k < end; k += step) bad = bad || !isfinite(x[k]);
  return !bad;
}

// The blocks of a cluster, or one block, share a row; the first one tells what all have found.
__global__ void __launch_bounds__(kThreads) find_not_finite(const __grid_constant__ FiniteArgs args) {
#if __CUDA_ARCH__ >= 900
  __shared__ int found;
#endif
  const float* const x = args.x + static_cast<std::int64_t>(blockIdx.y) * args.cols;
  const std::int64_t fours = reinterpret_cast<std::uintptr_t>(x) % 16 == 0 ? args.cols / 4 : 0;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  bool bad = false;
#pragma unroll 4
  for (std::int64_t i = first; i < fours; i += step) {
    const float4 four = reinterpret_cast<const float4*>(x)[i];
    bad = bad || !isfinite(four.x) || !isfinite(four.y) || !isfinite(four.z) || !isfinite(four.w);
  }
  bad = bad || !are_finite(x, 4 * fours + first, args.cols, step);
  const int own = __syncthreads_or(bad ? 1 : 0);
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x == 0) found = own;
  auto cluster = cooperative_groups::this_cluster();
  cluster.sync();
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    int any = 0;
    for (unsigned rank = 0; rank < gridDim.x; ++rank) any |= *cluster.map_shared_rank(&found, rank);
    args.bad[blockIdx.y] = any != 0 ? 1 : 0;
  }
  cluster.sync();  // a block's word stays until the first has read it
#else
  if (threadIdx.x == 0) args.bad[blockIdx.y] = own != 0 ? 1 : 0;
#endif
}

}  // namespace

int launch(const FiniteArgs& args, std::byte* /*workspace*/, cudaStream_t stream) {
  if (args.rows == 0) return cudaSuccess;
  constexpr std::int64_t kBlockColumns = 8192;
  const bool alone = args.cols <= kBlockColumns || !has_sm90();
  const unsigned blocks = alone ? 1 : args.cols <= 4 * kBlockColumns ? 4 : 8;
  return launch_grid(find_not_finite,
                     {.grid = dim3(blocks, grid_of(args.rows)),
                      .threads = kThreads,
                      .cluster = alone ? dim3(0, 0, 0) : dim3(blocks),
                      .early = false},
                     stream, args);
}

}  // namespace moracle::cuda
