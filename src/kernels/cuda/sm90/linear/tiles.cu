// Which linears of several tokens take tiles of their own, whose, and rounded inputs for them.
#include "kernels/cuda/common/arithmetic.h"
#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/linear/order.h"
#include "kernels/cuda/common/linear/scales.cuh"
#include "kernels/cuda/common/mma.cuh"

namespace moracle::cuda {

int launch_tiles_int4(const LinearArgs& linear, const FormedInputs& inputs, bool products, cudaStream_t stream);
int launch_tiles_int8(const LinearArgs& linear, const FormedInputs& inputs, bool products, cudaStream_t stream);
int launch_tiles_e4m3(const LinearArgs& linear, const FormedInputs& inputs, bool products, cudaStream_t stream);
int launch_tiles_bf16(const LinearArgs& linear, const FormedInputs& inputs, bool products, cudaStream_t stream);

namespace {

constexpr int kLeastGroup = 64;  // columns of a slice
constexpr int kThreads = 256;

struct RoundArgs {
  const float* x;        // [rows, cols]
  std::uint16_t* codes;  // [rows, padded]
  std::int32_t cols;
  std::int32_t padded;
  InputOrder order;
};

// A thread takes eight columns. Grid: shares of a row, rows.
__global__ void __launch_bounds__(kThreads) round_inputs(const __grid_constant__ RoundArgs args) {
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

bool can_round(const LinearArgs& linear) {
  for (int part = 0; part < linear.count; ++part) {
    if (linear.parts[part].matrix.order != kAbsent) return false;
  }
  return linear.parts[0].pack.input == InputKind::bf16 && linear.parts[0].matrix.cols % 8 == 0 &&
         reinterpret_cast<std::uintptr_t>(linear.x) % 16 == 0;
}

int launch_rounding(const LinearArgs& linear, const InputOrder& order, cudaStream_t stream) {
  const MatrixArgs& matrix = linear.parts[0].matrix;
  const RoundArgs args{
      .x = linear.x, .codes = linear.x_codes, .cols = matrix.cols, .padded = matrix.padded, .order = order};
  return launch_grid(
      round_inputs,
      {.grid = dim3(grid_of(matrix.padded, 8 * kThreads), static_cast<unsigned>(linear.tokens)), .threads = kThreads},
      stream, args);
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

bool are_products(const LinearArgs& linear) {
  if (linear.tokens <= kMostRounded || linear.batch_invariant != 0) return false;
  for (int part = 0; part < linear.count; ++part) {
    const LinearPart& of = linear.parts[part];
    if (of.matrix.rows % 4 != 0 || reinterpret_cast<std::uintptr_t>(of.y) % 16 != 0) return false;
  }
  return true;
}

int launch_tiles(const LinearArgs& linear, const FormedInputs& inputs, bool products, cudaStream_t stream) {
  switch (linear.parts[0].pack.code) {
    case DeviceCode::int4:
      return launch_tiles_int4(linear, inputs, products, stream);
    case DeviceCode::int8:
      return launch_tiles_int8(linear, inputs, products, stream);
    case DeviceCode::e4m3:
      return launch_tiles_e4m3(linear, inputs, products, stream);
    case DeviceCode::bf16:
      return launch_tiles_bf16(linear, inputs, products, stream);
    default:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace moracle::cuda
