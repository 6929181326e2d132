// The numbers of a row that rank highest.
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/ops/block.cuh"
#include "kernels/cuda/portable/ops/noise.cuh"

namespace moracle::cuda {

namespace {

constexpr int kThreads = 512;

// What a number is ranked by: itself, or with noise.
struct Plain {
  __device__ double bound(float value, int) const { return static_cast<double>(value); }
  __device__ double key(float value, int) const { return static_cast<double>(value); }
};
struct Noisy {
  std::uint64_t seed;
  double temperature;
  __device__ double bound(float value, int col) const {
    return static_cast<double>(value) / temperature + noise_bounds(seed, static_cast<std::uint64_t>(col)).most;
  }
  __device__ double key(float value, int col) const {
    return static_cast<double>(value) / temperature + gumbel_noise(seed, static_cast<std::uint64_t>(col));
  }
};

// Each place takes a pass over the row: the best of what ranks behind the place before.
template <class Rank>
__device__ void rank_row(const RankArgs& args, const Rank& rank) {
  const std::int64_t row = blockIdx.x;
  const float* const x = args.x + row * args.cols;
  const int cols = static_cast<int>(args.cols);
  Ranked<double> last{0.0, -1};
  for (std::int64_t place = 0; place < args.k; ++place) {
    Ranked<double> best{0.0, -1};
    for (int col = static_cast<int>(threadIdx.x); col < cols; col += kThreads) {
      if (best.index >= 0 && rank.bound(x[col], col) < best.value) continue;
      const Ranked<double> offered{rank.key(x[col], col), col};
      const bool later = place == 0 || offered.value < last.value || (offered.value == last.value && col > last.index);
      if (later) best = better(best, offered);
    }
    last = block_best<kThreads>(best);
    if (threadIdx.x == 0) args.out[row * args.k + place] = {last.index < 0 ? NAN : x[last.index], last.index};
  }
}

__global__ void __launch_bounds__(kThreads) top_k(const __grid_constant__ RankArgs args) {
  if (args.bad != nullptr && args.bad[blockIdx.x] != 0) return;
  if (args.seeds != nullptr) {
    rank_row(args, Noisy{args.seeds[blockIdx.x], args.temperature});
  } else {
    rank_row(args, Plain{});
  }
}

}  // namespace

int launch(const RankArgs& args, std::byte* /*workspace*/, cudaStream_t stream) {
  if (args.rows > 0) top_k<<<grid_of(args.rows), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace moracle::cuda
