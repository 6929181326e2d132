// y = x W^T of many tokens by warpgroup products, for up to kMostFused matrices in one launch.
//
//   tile      128 weight rows times 64 to 256 tokens; blocks stay, and take tiles in turn
//   stage     64 columns of a tile: codes as they are stored, and inputs, both by tensor copies
//   producer  one thread, which fills stages ahead, of the next tile too
//   consumers two warpgroups of 64 weight rows, whose fragments are made in registers; finished sums go out by a tensor
//             copy under the next tile's products
//
// Of codes a lane takes 16 neighbours of a slice's columns; inputs lie in the order in which fragments then have them
// (InputOrder). bf16 weights are multiplied as they are stored.
#pragma once

#include <algorithm>
#include <numeric>

#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/sm90/linear/scaled_sums.cuh"
#include "kernels/cuda/sm90/linear/whole_sums.cuh"

namespace moracle::cuda {

template <class Plan>
__global__ void __launch_bounds__(kProductThreads, 1) multiply_products(const __grid_constant__ ProductArgs args) {
  extern __shared__ __align__(128) std::uint8_t product_memory[];
  allow_next_grid();
  using Block = std::conditional_t<Plan::kSums == Sums::whole, WholeSums<Plan>, ScaledSums<Plan>>;
  Block(args, shared_address(product_memory)).run();
}

// Slices after which sums are scaled: wherever a scale of weights or inputs may change.
inline std::int32_t fold_slices(const LinearArgs& linear, const FormedInputs& inputs) {
  std::int32_t slices = inputs.group > 0 ? inputs.group / kSlice : 0;
  for (int part = 0; part < linear.count; ++part) {
    const MatrixArgs& matrix = linear.parts[part].matrix;
    if (matrix.group < matrix.padded) slices = std::gcd(slices, matrix.group / kSlice);
  }
  return slices == 0 ? linear.parts[0].matrix.padded / kSlice : slices;
}

template <class Plan>
cudaError_t launch_product_plan(const LinearArgs& linear, const FormedInputs& inputs, int multiprocessors,
                                cudaStream_t stream) {
  const MatrixArgs& first = linear.parts[0].matrix;
  ProductArgs args{.inputs = {},
                   .codes = {},
                   .out = {},
                   .matrices = {},
                   .count = linear.count,
                   .tokens = linear.tokens,
                   .padded = first.padded,
                   .row_blocks = 0,
                   .rank_slices = first.padded / kSlice,
                   .fold_slices = fold_slices(linear, inputs),
                   .input_group = inputs.group,
                   .input_groups = inputs.groups,
                   .scales = linear.x_scales};
  args.row_blocks = static_cast<std::int32_t>(list_matrices(linear, kProductRows, args.matrices));
  const auto tokens = static_cast<std::uint64_t>(linear.tokens);
  int error = map_rows({.first = linear.x_codes,
                        .rows = tokens,
                        .bytes = static_cast<std::uint64_t>(first.padded) * 2,
                        .box_rows = Plan::kTokens,
                        .box_bytes = kSlice * 2,
                        .swizzled = true},
                       args.inputs);
  for (int part = 0; part < linear.count && error == cudaSuccess; ++part) {
    const LinearPart& of = linear.parts[part];
    const auto rows = static_cast<std::uint64_t>(of.matrix.rows);
    error = map_rows({.first = of.pack.weights + of.matrix.codes,
                      .rows = rows,
                      .bytes = static_cast<std::uint64_t>(of.matrix.padded) * Plan::Form::kBits / 8,
                      .box_rows = kProductRows,
                      .box_bytes = Plan::Form::kBytes,
                      .swizzled = Plan::kSwizzled},
                     args.codes[part]);
    if (error != cudaSuccess) break;
    error = map_rows({.first = of.y,
                      .rows = tokens,
                      .bytes = rows * 4,
                      .box_rows = Plan::kOutTokens,
                      .box_bytes = kOutColumns * 4,
                      .swizzled = true},
                     args.out[part]);
  }
  if (error != cudaSuccess) return static_cast<cudaError_t>(error);
  const auto kernel = multiply_products<Plan>;
  if (const cudaError_t set = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kShared);
      set != cudaSuccess)
    return set;
  const unsigned tiles = static_cast<unsigned>(args.row_blocks) * grid_of(linear.tokens, Plan::kTokens);
  GridShape shape{.grid = dim3(std::min(tiles, static_cast<unsigned>(multiprocessors))),
                  .threads = kProductThreads,
                  .shared = Plan::kShared};
  if constexpr (Plan::kSums == Sums::shared) {
    // Rows that one scale serves may be cut anywhere.
    const int unit = args.fold_slices == args.rank_slices ? 2 : args.fold_slices;
    const int folds = (args.rank_slices + unit - 1) / unit;
    int ranks = std::clamp(multiprocessors / static_cast<int>(tiles), 1, std::min(kMostProductRanks, folds));
    const int rank_folds = (folds + ranks - 1) / ranks;
    ranks = (folds + rank_folds - 1) / rank_folds;
    args.rank_slices = rank_folds * unit;
    shape.grid = dim3(tiles, static_cast<unsigned>(ranks));
    shape.cluster = dim3(1, static_cast<unsigned>(ranks));
  }
  return launch_grid(kernel, shape, stream, args);
}

template <class Code>
cudaError_t launch_products(const LinearArgs& linear, const FormedInputs& inputs, cudaStream_t stream) {
  int multiprocessors = 0;
  if (const cudaError_t error = count_multiprocessors(multiprocessors); error != cudaSuccess) return error;
  unsigned blocks = 0;
  for (int part = 0; part < linear.count; ++part) blocks += grid_of(linear.parts[part].matrix.rows, kProductRows);
  const auto waves = [&](std::int64_t tokens) {
    return grid_of(blocks * grid_of(linear.tokens, tokens), multiprocessors);
  };
  const unsigned tiles = blocks * grid_of(linear.tokens, 64);
  if (2 * tiles <= static_cast<unsigned>(multiprocessors))
    return launch_product_plan<ProductPlan<Code, 64, Sums::shared>>(linear, inputs, multiprocessors, stream);
  if (linear.tokens <= 64)
    return launch_product_plan<ProductPlan<Code, 64, Sums::scaled>>(linear, inputs, multiprocessors, stream);
  if (inputs.group > 0) {
    // Tiles of 128 tokens read weights half as often; so few of them leave multiprocessors without work.
    if (4 * blocks * grid_of(linear.tokens, 128) <= 3 * static_cast<unsigned>(multiprocessors))
      return launch_product_plan<ProductPlan<Code, 64, Sums::scaled>>(linear, inputs, multiprocessors, stream);
    return launch_product_plan<ProductPlan<Code, 128, Sums::scaled>>(linear, inputs, multiprocessors, stream);
  }
  // Cycles of a slice in hundreds.
  if (waves(256) * 11 <= waves(128) * 6)
    return launch_product_plan<ProductPlan<Code, 256, Sums::whole>>(linear, inputs, multiprocessors, stream);
  return launch_product_plan<ProductPlan<Code, 128, Sums::whole>>(linear, inputs, multiprocessors, stream);
}

}  // namespace moracle::cuda
