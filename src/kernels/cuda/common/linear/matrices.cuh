// The matrices of a call of linears, of which a block has rows of one.
#pragma once

#include "kernels/args/linear.h"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/linear/scales.cuh"

namespace moracle::cuda {

// What a block reads of its matrix.
struct LinearMatrix {
  const std::uint8_t* weights;
  MatrixArgs matrix;
  float* out;
  DeviceScale scale;
  std::uint32_t reciprocal;  // of columns that share a weight's scale
  std::int32_t first_block;  // of the grid
};

// Fills `matrices` with those of a call, one after the other in blocks of `block_rows` rows. Returns their blocks.
inline unsigned list_matrices(const LinearArgs& linear, int block_rows, LinearMatrix (&matrices)[kMostFused]) {
  unsigned blocks = 0;
  for (int part = 0; part < linear.count; ++part) {
    const LinearPart& from = linear.parts[part];
    matrices[part] = {.weights = from.pack.weights,
                      .matrix = from.matrix,
                      .out = from.y,
                      .scale = from.pack.scale,
                      .reciprocal = reciprocal(from.matrix.group),
                      .first_block = static_cast<std::int32_t>(blocks)};
    blocks += grid_of(from.matrix.rows, block_rows);
  }
  return blocks;
}

// The matrix that a block has rows of.
__device__ __forceinline__ int part_of_block(const LinearMatrix (&matrices)[kMostFused], int count, int block) {
  int own = 0;
  while (own + 1 < count && block >= matrices[own + 1].first_block) ++own;
  return own;
}
__device__ __forceinline__ const LinearMatrix& matrix_of_block(const LinearMatrix (&matrices)[kMostFused], int count,
                                                               unsigned block) {
  return matrices[part_of_block(matrices, count, static_cast<int>(block))];
}

}  // namespace moracle::cuda
