// Router logits of many tokens.
#include "kernels/cuda/common/ops/router.cuh"

#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/common/mma.cuh"

namespace moracle::cuda {

namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kSmallTiles = 128;  // tokens up to which tiles have few of them

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
// tokens and experts, which are copied kStages - 1 stages ahead. A warp takes kWarpRows of each. kParts: warps
// that share the columns of a tile, each with stages of its own; then columns are added in another order.
constexpr int kWarpRows = 8;
template <int kTokenWarps_, int kExpertWarps_, int kParts_, int kStages_>
struct RouterPlan {
  static constexpr int kStages = kStages_;
  static constexpr int kExpertWarps = kExpertWarps_;
  static constexpr int kParts = kParts_;
  static constexpr int kTileWarps = kTokenWarps_ * kExpertWarps;
  static constexpr int kThreads = 32 * kTileWarps * kParts;
  static_assert(kParts == 1 || kTileWarps == 1);
  static constexpr int kTokens = kWarpRows * kTokenWarps_;
  static constexpr int kExperts = kWarpRows * kExpertWarps;
  static constexpr int kStageFours = (kTokens + kExperts) * 32;
  static constexpr int kBytes = kParts * kStages * kStageFours * static_cast<int>(sizeof(float4));
};

// What a warp copies: rows of tokens and experts, 16 bytes a lane.
template <class Plan>
class RouterCopies {
 public:
  // Columns from `column` on.
  __device__ RouterCopies(const RouteArgs& args, std::int64_t token, std::int64_t expert, std::int64_t column)
      : any_(args.router), left_(args.hidden - column - kLaneColumns * lane()), to_(warp() * 32 + lane()) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = warp() + kWarps * i;
      from_[i] =
          column + kLaneColumns * lane() +
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
  static constexpr int kWarps = Plan::kTileWarps;
  static constexpr int kRows = (Plan::kTokens + Plan::kExperts) / kWarps;

  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ int warp() { return static_cast<int>(threadIdx.x) / 32 % kWarps; }

  const float* from_[kRows];
  const float* any_;
  std::int64_t left_;  // columns from this lane's on
  int to_;
};

// Of 4 kStep sums of each lane, 2 kStep of lanes kStep apart.
template <int kStep>
__device__ __forceinline__ void halve_sums(float (&sums)[kWarpRows * kWarpRows], int lane) {
  const bool upper = (lane & kStep) != 0;
#pragma unroll
  for (int i = 0; i < 2 * kStep; ++i) {
    const float given = upper ? sums[i] : sums[i + 2 * kStep];
    const float kept = upper ? sums[i + 2 * kStep] : sums[i];
    sums[i] = kept + __shfl_xor_sync(~0U, given, kStep);
  }
  if constexpr (kStep > 1) halve_sums<kStep / 2>(sums, lane);
}

// Sums of all lanes and parts. Lanes halve what they have with one another, so that each is left two of the tile's
// sums.
template <class Plan>
__device__ __forceinline__ void store_parts(float (&sums)[kWarpRows * kWarpRows], const RouteArgs& args,
                                            std::int64_t token, std::int64_t expert) {
  constexpr int kSums = kWarpRows * kWarpRows;
  __shared__ float parts[Plan::kParts][kSums];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  halve_sums<16>(sums, lane);
  float* const own = parts[threadIdx.x / 32];
  own[2 * lane] = sums[0];
  own[2 * lane + 1] = sums[1];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kSums; i += Plan::kThreads) {
    float sum = 0.0F;
#pragma unroll
    for (int part = 0; part < Plan::kParts; ++part) sum += parts[part][i];
    const std::int64_t to_token = token + i / kWarpRows;
    const std::int64_t to_expert = expert + i % kWarpRows;
    if (to_token < args.tokens && to_expert < args.shape.experts) store_logit(args, to_token, to_expert, sum);
  }
}

template <class Plan>
__global__ void __launch_bounds__(Plan::kThreads) router_tiles(const __grid_constant__ RouteArgs args) {
  extern __shared__ __align__(16) float4 router_stages[];
  allow_next_grid();
  wait_for_last_grid();
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.y) * Plan::kTokens;
  const std::int64_t expert = static_cast<std::int64_t>(blockIdx.x) * Plan::kExperts;
  const auto all_steps = static_cast<int>((args.hidden + kStepColumns - 1) / kStepColumns);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int part = warp / Plan::kTileWarps;
  const int own_token = warp % Plan::kTileWarps / Plan::kExpertWarps * kWarpRows;
  const int own_expert = warp % Plan::kExpertWarps * kWarpRows;
  const int part_steps = (all_steps + Plan::kParts - 1) / Plan::kParts;
  const int steps = min(part_steps, all_steps - part * part_steps);
  float4* const stages = router_stages + part * Plan::kStages * Plan::kStageFours;
  RouterCopies<Plan> copies(args, token, expert, std::int64_t{part} * part_steps * kStepColumns);
  for (int step = 0; step + 1 < Plan::kStages; ++step) {
    if (step < steps) copies.copy(stages + step * Plan::kStageFours);
    commit_copies();
  }
  float sums[kWarpRows * kWarpRows] = {};
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    wait_copies<Plan::kStages - 2>();
    Plan::kTileWarps == 1 ? __syncwarp() : __syncthreads();
    const int next = step + Plan::kStages - 1;
    if (next < steps) copies.copy(stages + next % Plan::kStages * Plan::kStageFours);
    commit_copies();
    const float4* const stage = stages + step % Plan::kStages * Plan::kStageFours + lane;
    float4 inputs[kWarpRows];
#pragma unroll
    for (int t = 0; t < kWarpRows; ++t) inputs[t] = stage[(own_token + t) * 32];
#pragma unroll
    for (int e = 0; e < kWarpRows; ++e) {
      const float4 weights = stage[(Plan::kTokens + own_expert + e) * 32];
#pragma unroll
      for (int t = 0; t < kWarpRows; ++t) add_products(sums[t * kWarpRows + e], inputs[t], weights);
    }
  }
  if constexpr (Plan::kParts > 1) return store_parts<Plan>(sums, args, token, expert);
#pragma unroll
  for (int t = 0; t < kWarpRows; ++t) {
#pragma unroll
    for (int e = 0; e < kWarpRows; ++e) {
      const float sum = warp_sum(sums[t * kWarpRows + e]);
      const std::int64_t to_token = token + own_token + t;
      const std::int64_t to_expert = expert + own_expert + e;
      if (lane == 0 && to_token < args.tokens && to_expert < args.shape.experts)
        store_logit(args, to_token, to_expert, sum);
    }
  }
}

template <class Plan>
cudaError_t launch_plan(const RouteArgs& args, cudaStream_t stream) {
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

// kStages: what shared memory has room for.
template <int kStages>
cudaError_t launch_tiles(const RouteArgs& args, cudaStream_t stream) {
  static_assert(kStages > 3 || RouterPlan<4, 4, 1, kStages>::kBytes <= kPortableShared);
  if (args.tokens > kSmallTiles) return launch_plan<RouterPlan<4, 4, 1, kStages>>(args, stream);
  return args.batch_invariant == 0 ? launch_plan<RouterPlan<1, 1, 4, kStages>>(args, stream)
                                   : launch_plan<RouterPlan<1, 1, 1, kStages>>(args, stream);
}

}  // namespace

int launch_router(const RouteArgs& args, cudaStream_t stream) {
  if (whole_fours(args)) {
    if (takes_router_products(args)) return launch_router_products(args, stream);
    return has_sm90() ? launch_tiles<4>(args, stream) : launch_tiles<3>(args, stream);
  }
  const std::int64_t tiles = (args.shape.experts + kTileExperts - 1) / kTileExperts;
  const std::int64_t warps = (args.tokens + kTileTokens - 1) / kTileTokens * tiles;
  router<<<grid_of(warps, kThreads / 32), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace moracle::cuda
