// Operations on numbers or rows, each for itself.
#include "kernels/cuda/common/arithmetic.h"
#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/ops/norm.cuh"

namespace moracle::cuda {

namespace {

constexpr int kThreads = 256;

// Element k of a row of codes.
__device__ float element(const PackArgs& pack, const std::uint8_t* line, int k, int zero) {
  const auto* const words = reinterpret_cast<const std::uint32_t*>(line);
  switch (pack.code) {
    case DeviceCode::int4:
      return decode_bf16(Int4::decode(words, k, zero, 0));
    case DeviceCode::int8:
      return decode_bf16(Int8::decode(words, k, zero, 0));
    case DeviceCode::e2m1:
      return decode_bf16(E2m1::decode(words, k, zero, 0));
    case DeviceCode::e4m3:
      return decode_bf16(E4m3::decode(words, k, zero, 0));
    case DeviceCode::bf16:
      return decode_bf16(Bf16::decode(words, k, zero, 0));
    case DeviceCode::f16:
      return decode_f16(reinterpret_cast<const std::uint16_t*>(line)[k]);
    case DeviceCode::f32:
      break;
  }
  return reinterpret_cast<const float*>(line)[k];
}

__global__ void __launch_bounds__(kThreads) embed(const __grid_constant__ EmbedArgs args) {
  allow_next_grid();
  wait_for_last_grid();
  const std::int64_t token = blockIdx.x;
  const std::int64_t row = args.ids[token];
  const MatrixArgs& matrix = args.matrix;
  if (row < 0) {
    for (int k = static_cast<int>(threadIdx.x); k < matrix.cols; k += kThreads)
      args.out[token * matrix.cols + k] = 0.0F;
    return;
  }
  const std::uint8_t* const weights = args.pack.weights;
  const std::uint8_t* const line = weights + matrix.codes + row * matrix.padded * bits_of(args.pack.code) / 8;
  const auto* const order =
      matrix.order != kAbsent ? reinterpret_cast<const std::int32_t*>(weights + matrix.order) : nullptr;
  const float global =
      matrix.global_scale != kAbsent ? *reinterpret_cast<const float*>(weights + matrix.global_scale) : 1.0F;
  for (int k = static_cast<int>(threadIdx.x); k < matrix.cols; k += kThreads) {
    const std::int64_t group = row * matrix.groups + k / matrix.group;
    const int zero = matrix.zeros != kAbsent ? weights[matrix.zeros + group] : neutral_zero(args.pack.code);
    const float scale = matrix.scales != kAbsent ? decode_scale(args.pack.scale, weights + matrix.scales, group) : 1.0F;
    args.out[token * matrix.cols + (order != nullptr ? order[k] : k)] =
        element(args.pack, line, k, zero) * (scale * global);
  }
}

// Blocks of a multiprocessor: registers for more would be spilled on capability 12.0.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr int kNormBlocks = 2;
#else
constexpr int kNormBlocks = 0;  // as many as there are
#endif

// kAdds: x is added to the row first. A norm of few rows starts while what makes them still runs, and a linear that
// follows may fetch its weights meanwhile.
template <bool kAdds, class Args>
__global__ void __launch_bounds__(kNormThreads, kNormBlocks) norm(const __grid_constant__ Args args) {
  allow_next_grid();
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t cols = args.cols;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * cols;
  const float* const x = args.x + first;
  float* const out = args.out + first;
  if (by_fours(args)) {
    HeldRow weight;
    weight.load(thread, cols, args.weight);
    wait_for_last_grid();
    HeldRow row;
    row.load(thread, cols, x);
    if constexpr (kAdds) {
      float* const sum = args.sum + first;
      row.add(thread, cols, sum);
      row.each(thread, cols, [&](const float4& four, int at) { reinterpret_cast<float4*>(sum)[at] = four; });
    }
    const float scale = norm_scale(row.squares(thread, cols), cols, args.eps);
#pragma unroll
    for (int i = 0; i < kNormFours; ++i) {
      const int at = thread + i * kNormThreads;
      if (4 * at < cols) reinterpret_cast<float4*>(out)[at] = scaled(row.fours[i], scale, weight.fours[i]);
    }
    return;
  }
  wait_for_last_grid();
  float squares = 0.0F;
  for (std::int64_t k = thread; k < cols; k += kNormThreads) {
    float value = x[k];
    if constexpr (kAdds) args.sum[first + k] = value = args.sum[first + k] + value;
    squares = fmaf(value, value, squares);
  }
  const float scale = norm_scale(squares, cols, args.eps);
  for (std::int64_t k = thread; k < cols; k += kNormThreads) {
    float value = x[k];
    if constexpr (kAdds) value = args.sum[first + k];
    out[k] = value * scale * args.weight[k];
  }
}

template <bool kAdds, class Args>
cudaError_t launch_norm(const Args& args, cudaStream_t stream) {
  return launch_grid(norm<kAdds, Args>, {.grid = dim3(grid_of(args.rows)), .threads = kNormThreads}, stream, args);
}

// The number of this thread in a grid over [0, count).
__device__ std::int64_t own_index() {
  return static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}

__global__ void __launch_bounds__(kThreads) add(const __grid_constant__ AddArgs args) {
  allow_next_grid();
  wait_for_last_grid();
  const std::int64_t at = own_index();
  if (at < args.count) args.sum[at] += args.x[at];
}

__global__ void __launch_bounds__(kThreads) add_gated(const __grid_constant__ AddGatedArgs args) {
  allow_next_grid();
  wait_for_last_grid();
  const std::int64_t at = own_index();
  if (at >= args.rows * args.cols) return;
  const float gated = args.x[at] * sigmoid(args.gate[at / args.cols]);
  args.x[at] = gated;
  args.sum[at] += gated;
}

__device__ float gelu(float x) {
  constexpr float kInvSqrt2 = 0.70710678118654752F;
  return 0.5F * x * (1.0F + erff(x * kInvSqrt2));
}
__device__ float relu2(float x) {
  const float above = x < 0.0F ? 0.0F : x;  // NaN stays
  return above * above;
}

// scheme/glu.h has the formulas.
__device__ float activate(const ActivationSpec& spec, float gate, float up) {
  const auto gated_by = [&](GateFn fn) {
    return gated({.fn = fn, .alpha = spec.alpha, .beta = spec.beta, .limit = spec.limit}, gate, up);
  };
  switch (spec.fn) {
    case ActivationFn::silu:
      return gated_by(GateFn::silu);
    case ActivationFn::gelu:
      return gelu(gate) * up;
    case ActivationFn::gelu_tanh:
      return gated_by(GateFn::gelu_tanh);
    case ActivationFn::swigluoai:
    case ActivationFn::swigluoai_split:
      return gated_by(GateFn::swigluoai);
    case ActivationFn::swiglustep:
      return gated_by(GateFn::swiglustep);
    case ActivationFn::situ:
      return spec.beta * tanhf(gate / spec.beta) * sigmoid(gate) * up;
    case ActivationFn::relu2_no_mul:
      return relu2(gate);
    case ActivationFn::relu2:
      return relu2(gate) * up;
    case ActivationFn::silu_no_mul:
      return gate * sigmoid(gate);
    case ActivationFn::gelu_no_mul:
      return gelu(gate);
    case ActivationFn::gelu_tanh_no_mul:
      up = 1.0F;
      return gated_by(GateFn::gelu_tanh);
  }
  return 0.0F;
}

__global__ void __launch_bounds__(kThreads) gated_activation(const __grid_constant__ GatedArgs args) {
  allow_next_grid();
  wait_for_last_grid();
  allow_next_grid();
  const std::int64_t at = own_index();
  if (at < args.count) args.out[at] = activate(args.activation, args.gate[at], args.up[at]);
}

__global__ void __launch_bounds__(kThreads) gather(const __grid_constant__ GatherArgs args) {
  allow_next_grid();
  wait_for_last_grid();
  const std::int64_t row = blockIdx.x;
  const float* const from = args.from + args.index[row] * args.cols;
  for (std::int64_t k = threadIdx.x; k < args.cols; k += kThreads) args.to[row * args.cols + k] = from[k];
}

__global__ void __launch_bounds__(kThreads) rope_table(const __grid_constant__ RopeTableArgs args) {
  allow_next_grid();
  wait_for_last_grid();
  const std::int64_t at = own_index();
  if (at >= args.tokens * args.half) return;
  const float angle = static_cast<float>(args.positions[at / args.half]) * args.inv_freq[at % args.half];
  // In double, in half turns: the reduction of large angles in f32 goes through local memory.
  constexpr double kHalfTurns = 0.318309886183790672;
  double sine = 0.0;
  double cosine = 0.0;
  sincospi(static_cast<double>(angle) * kHalfTurns, &sine, &cosine);
  args.cos[at] = static_cast<float>(cosine) * args.scale;
  args.sin[at] = static_cast<float>(sine) * args.scale;
}

}  // namespace

int launch(const EmbedArgs& args, std::byte* /*workspace*/, cudaStream_t stream) {
  if (args.tokens > 0) launch_grid(embed, {.grid = dim3(grid_of(args.tokens)), .threads = kThreads}, stream, args);
  return cudaGetLastError();
}

int launch(const RmsNormArgs& args, std::byte* /*workspace*/, cudaStream_t stream) {
  return args.rows > 0 ? launch_norm<false>(args, stream) : cudaSuccess;
}

int launch(const AddNormArgs& args, std::byte* /*workspace*/, cudaStream_t stream) {
  return args.rows > 0 ? launch_norm<true>(args, stream) : cudaSuccess;
}

int launch(const AddArgs& args, std::byte* /*workspace*/, cudaStream_t stream) {
  if (args.count > 0)
    launch_grid(add, {.grid = dim3(grid_of(args.count, kThreads)), .threads = kThreads}, stream, args);
  return cudaGetLastError();
}

int launch(const AddGatedArgs& args, std::byte* /*workspace*/, cudaStream_t stream) {
  if (args.rows > 0)
    launch_grid(add_gated, {.grid = dim3(grid_of(args.rows * args.cols, kThreads)), .threads = kThreads}, stream, args);
  return cudaGetLastError();
}

int launch(const GatedArgs& args, std::byte* /*workspace*/, cudaStream_t stream) {
  if (args.count > 0)
    launch_grid(gated_activation, {.grid = dim3(grid_of(args.count, kThreads)), .threads = kThreads}, stream, args);
  return cudaGetLastError();
}

int launch(const GatherArgs& args, std::byte* /*workspace*/, cudaStream_t stream) {
  if (args.rows > 0) launch_grid(gather, {.grid = dim3(grid_of(args.rows)), .threads = kThreads}, stream, args);
  return cudaGetLastError();
}

int launch(const RopeTableArgs& args, std::byte* /*workspace*/, cudaStream_t stream) {
  if (args.tokens * args.half > 0)
    launch_grid(rope_table, {.grid = dim3(grid_of(args.tokens * args.half, kThreads)), .threads = kThreads}, stream,
                args);
  return cudaGetLastError();
}

}  // namespace moracle::cuda
