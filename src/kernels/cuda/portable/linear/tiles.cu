// Which linears of several tokens take tiles of their own, whose, and rounded inputs for them.
#include "kernels/cuda/common/arithmetic.h"
#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/linear/order.h"
#include "kernels/cuda/common/linear/scales.cuh"
#include "kernels/cuda/common/mma.cuh"

namespace moracle::cuda {

int launch_tiles_int4(const LinearArgs& linear, const FormedInputs& inputs, cudaStream_t stream);
int launch_tiles_int8(const LinearArgs& linear, const FormedInputs& inputs, cudaStream_t stream);
int launch_tiles_e4m3(const LinearArgs& linear, const FormedInputs& inputs, cudaStream_t stream);
int launch_tiles_bf16(const LinearArgs& linear, const FormedInputs& inputs, cudaStream_t stream);

namespace {

constexpr int kLeastGroup = 64;  // columns of a slice
constexpr int kThreads = 256;

// A thread takes eight columns. Grid: shares of a row, rows.
__global__ void __launch_bounds__(kThreads) round_inputs(const __grid_constant__ RoundedInputs args) {
  allow_next_grid();
  wait_for_last_grid();
  const int column = 8 * static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  const std::int64_t row = blockIdx.y;
  if (column >= args.padded) return;
  float4 a{};
  float4 b{};
  if (column < args.cols) {
    const auto* const from = reinterpret_cast<const float4*>(args.x + row * args.cols + column);
    a = from[0];
    b = from[1];
  }
  const uint4 eight = args.order.nibbles
                          ? uint4{pack_bf16(a.x, b.x), pack_bf16(a.y, b.y), pack_bf16(a.z, b.z), pack_bf16(a.w, b.w)}
                          : uint4{pack_bf16(a.x, a.y), pack_bf16(a.z, a.w), pack_bf16(b.x, b.y), pack_bf16(b.z, b.w)};
  std::uint16_t* const to = args.codes + row * args.padded;
  if (!args.order.fragments) {
    *reinterpret_cast<uint4*>(to + column) = eight;
    return;
  }
  const std::uint32_t pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) *reinterpret_cast<std::uint32_t*>(to + fragment_column(column + 2 * i)) = pairs[i];
}

}  // namespace

bool can_round(const RoundedInputs& inputs) {
  return inputs.cols % 8 == 0 && reinterpret_cast<std::uintptr_t>(inputs.x) % 16 == 0;
}

bool can_round(const LinearArgs& linear) {
  for (int part = 0; part < linear.count; ++part) {
    if (linear.parts[part].matrix.order != kAbsent) return false;
  }
  return linear.parts[0].pack.input == InputKind::bf16 &&
         can_round(RoundedInputs{.x = linear.x, .cols = linear.parts[0].matrix.cols});
}

int launch_rounding(const RoundedInputs& inputs, cudaStream_t stream) {
  return launch_grid(
      round_inputs,
      {.grid = dim3(grid_of(inputs.padded, 8 * kThreads), static_cast<unsigned>(inputs.rows)), .threads = kThreads},
      stream, inputs);
}

bool are_tiled(const LinearArgs& linear, const FormedInputs& inputs) {
  for (int part = 0; part < linear.count; ++part) {
    const MatrixArgs& matrix = linear.parts[part].matrix;
    if (matrix.padded > kMostColumns || (matrix.group < matrix.padded && matrix.group % kLeastGroup != 0)) return false;
  }
  if (inputs.group > 0 && inputs.group % kLeastGroup != 0) return false;
  switch (linear.parts[0].pack.code) {
    case DeviceCode::int4:
    case DeviceCode::int8:
    case DeviceCode::e4m3:
    case DeviceCode::bf16:
      return true;
    default:
      break;
  }
  return false;
}

int launch_tiles(const LinearArgs& linear, const FormedInputs& inputs, cudaStream_t stream) {
  switch (linear.parts[0].pack.code) {
    case DeviceCode::int4:
      return launch_tiles_int4(linear, inputs, stream);
    case DeviceCode::int8:
      return launch_tiles_int8(linear, inputs, stream);
    case DeviceCode::e4m3:
      return launch_tiles_e4m3(linear, inputs, stream);
    case DeviceCode::bf16:
      return launch_tiles_bf16(linear, inputs, stream);
    default:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace moracle::cuda
