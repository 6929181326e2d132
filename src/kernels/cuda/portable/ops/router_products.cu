// Router logits of many tokens by products of TF32: each number is two of 11 bits, so that a logit keeps the precision
// of f32 sums.
#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/ops/router.cuh"
#include "kernels/cuda/common/ops/tf32.cuh"

namespace moracle::cuda {

namespace {

// A block takes 64 tokens and 64 experts; a warp 32 of each, and one half of a stage's columns.
struct TileShape {
  static constexpr int kRows = 64;
  static constexpr int kDepth = 64;  // columns of a stage
  static constexpr int kHalf = kDepth / 2;
  static constexpr int kThreads = 256;
  static constexpr int kPitch = kDepth + 4;  // so that the numbers of a fragment lie in banks of their own
};
// kStages: what shared memory has room for.
template <int kStages_>
struct Tile : TileShape {
  static constexpr int kStages = kStages_;
  float inputs[kStages][kRows][kPitch];
  float weights[kStages][kRows][kPitch];
};
constexpr int kSumPitch = TileShape::kRows + 4;

// Columns [from, from + kDepth) of the tile's rows; zeros behind the last. Rows beyond the last are the last again.
template <class Tile>
__device__ __forceinline__ void copy_stage(Tile& tile, int stage, const RouteArgs& args, std::int64_t token,
                                           std::int64_t expert, int from) {
  constexpr int kFours = Tile::kDepth / 4;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < 2 * Tile::kRows * kFours; i += Tile::kThreads) {
    const int row = i / kFours % Tile::kRows;
    const int column = from + i % kFours * 4;
    const bool weight = i >= Tile::kRows * kFours;
    const float* const first = weight
                                   ? args.router + min(expert + row, std::int64_t{args.shape.experts} - 1) * args.hidden
                                   : args.x + min(token + row, std::int64_t{args.tokens} - 1) * args.hidden;
    float* const to = (weight ? tile.weights : tile.inputs)[stage][row] + i % kFours * 4;
    copy_async(to, column < args.hidden ? first + column : first, column < args.hidden);
  }
  commit_copies();
}

// Grid: experts, tokens.
template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads) router_products(const __grid_constant__ RouteArgs args) {
  extern __shared__ __align__(16) std::byte router_tile[];
  static_assert(sizeof(float) * Tile::kRows * kSumPitch <= sizeof(Tile));
  Tile& tile = *reinterpret_cast<Tile*>(router_tile);
  allow_next_grid();
  wait_for_last_grid();
  const std::int64_t token = std::int64_t{blockIdx.y} * Tile::kRows;
  const std::int64_t expert = std::int64_t{blockIdx.x} * Tile::kRows;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int half = warp / 4;
  const int row = warp / 2 % 2 * 32 + lane / 4;
  const int column = warp % 2 * 32 + lane / 4;
  float sums[2][4][4] = {};
#pragma unroll 1
  for (int stage = 0; stage + 1 < Tile::kStages; ++stage)
    copy_stage(tile, stage, args, token, expert, stage * Tile::kDepth);
  int stage = 0;
#pragma unroll 1
  for (int from = 0; from < args.hidden; from += Tile::kDepth) {
    wait_copies<Tile::kStages - 2>();
    __syncthreads();
    copy_stage(tile, (stage + Tile::kStages - 1) % Tile::kStages, args, token, expert,
               from + (Tile::kStages - 1) * Tile::kDepth);
#pragma unroll
    for (int i = 0; i < Tile::kHalf; i += 8) {
      const int k = half * Tile::kHalf + i + lane % 4;
      SplitTf32<4> a[2];
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int j = 0; j < 4; ++j) a[m].set(j, tile.inputs[stage][row + 16 * m + j % 2 * 8][k + j / 2 * 4]);
      }
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        SplitTf32<2> b;
        b.set(0, tile.weights[stage][column + 8 * n][k]);
        b.set(1, tile.weights[stage][column + 8 * n][k + 4]);
#pragma unroll
        for (int m = 0; m < 2; ++m) multiply_split(sums[m][n], a[m], b);
      }
    }
    stage = (stage + 1) % Tile::kStages;
  }
  wait_copies<0>();
  __syncthreads();
  // The halves are added by way of shared memory, which stages leave.
  auto* const shared = reinterpret_cast<float(*)[kSumPitch]>(router_tile);
  const auto each = [&](const auto& visit) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
#pragma unroll
        for (int j = 0; j < 4; ++j)
          visit(row + 16 * m + j / 2 * 8, warp % 2 * 32 + 8 * n + 2 * (lane % 4) + j % 2, sums[m][n][j]);
      }
    }
  };
  if (half == 1) each([&](int t, int e, float sum) { shared[t][e] = sum; });
  __syncthreads();
  if (half == 1) return;
  each([&](int t, int e, float sum) {
    if (token + t < args.tokens && expert + e < args.shape.experts)
      store_logit(args, token + t, expert + e, sum + shared[t][e]);
  });
}

template <class Tile>
cudaError_t launch_products(const RouteArgs& args, cudaStream_t stream) {
  if (const cudaError_t error =
          cudaFuncSetAttribute(router_products<Tile>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Tile));
      error != cudaSuccess)
    return error;
  return launch_grid(router_products<Tile>,
                     {.grid = dim3(grid_of(args.shape.experts, Tile::kRows), grid_of(args.tokens, Tile::kRows)),
                      .threads = static_cast<unsigned>(Tile::kThreads),
                      .shared = sizeof(Tile)},
                     stream, args);
}

}  // namespace

bool takes_router_products(const RouteArgs& args) {
  constexpr unsigned kLeastBlocks = 96;
  return args.batch_invariant == 0 &&
         grid_of(args.shape.experts, TileShape::kRows) * grid_of(args.tokens, TileShape::kRows) >= kLeastBlocks;
}

int launch_router_products(const RouteArgs& args, cudaStream_t stream) {
  static_assert(sizeof(Tile<2>) <= kPortableShared);
  return has_sm90() ? launch_products<Tile<3>>(args, stream) : launch_products<Tile<2>>(args, stream);
}

}  // namespace moracle::cuda
