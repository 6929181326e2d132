// Rows of a grouped product: pairs of token and choice, sorted by expert and cut into tiles.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/common/arithmetic.h"

namespace moracle::cuda {

// Rows of one expert.
struct RowTile {
  std::int32_t expert;
  std::int32_t first;  // row
  std::int32_t count;
  std::int32_t width;  // of the products: `count` in steps of kWidthStep
};
static_assert(sizeof(RowTile) == 16);
inline constexpr int kTileTiles = 16;  // of 16 weight rows, that a block multiplies at once
inline constexpr int kMostTileRows = 128;
inline constexpr int kFewTileRows = 64;  // where experts have few rows
inline constexpr int kWidthStep = 16;

// Place of column `c` among its 32, as records permute them (common/tile_layout.h): a fragment takes four columns of
// each of its lanes' eight, the first two on its left half.
MORACLE_BOTH int permuted(int c) {
  const int lane = c % 32 / 8;
  const int i = c % 8;
  return c / 32 * 32 + i / 4 * 16 + i % 4 / 2 * 8 + lane * 2 + i % 2;
}

// The same of bytes, of which a fragment takes four neighbours in the order of four_bytes.
MORACLE_BOTH int permuted_byte(int c) {
  const int i = c % 4;
  return c / 32 * 32 + c % 8 / 4 * 16 + c % 32 / 16 * 8 + c % 16 / 8 * 4 + i % 2 * 2 + i / 2;
}

}  // namespace moracle::cuda
