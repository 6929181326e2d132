// Packed matrices as kernels of a device read them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/args/plain.h"

namespace moracle {

// Codes of weights on a device, row by row, columns ascending, the lowest bits of a byte first.
enum class DeviceCode : std::int32_t { int4, int8, e2m1, e4m3, bf16, f16, f32 };
enum class DeviceScale : std::int32_t { none, f32, f16, bf16, e4m3, e8m0 };

// Weights in records, which the kernels that stream them read (cuda/common/tile_layout.h). `row`: one scale a row,
// in f32. `split`: a scale of 128 columns as the sum of two bf16 numbers. mxfp4_row: scales as steps under one of the
// row, so that E4M3 holds codes times their steps.
enum class RecordKind : std::int32_t {
  none,  // rows one after the other
  int4_bf16,
  int4_f16,
  int8_row,
  int8_split,
  e4m3_row,
  e4m3_split,
  mxfp4,
  mxfp4_row,
  nvfp4,
  bf16
};

// What a kernel makes of its f32 inputs before it multiplies them. `split` keeps 24 bits as three bf16 numbers; the
// rest are the activation keys of the schemes.
enum class InputKind : std::int32_t {
  bf16,
  split,
  int8_token,
  int8_tensor,
  e4m3_token,
  e4m3_group,
  e4m3_tensor,
  mx_e2m1,
  mx_e2m3,
  mx_e3m2,
  mx_e4m3,
  nvfp4
};

// The same with its parameters. `split`: numbers stay as they are.
struct InputQuant {
  InputKind kind = InputKind::split;
  std::int32_t group = 0;  // columns under one scale; 0: the whole row
  float scale = 1.0F;      // stored: of a static kind its scale, of nvfp4 the multiplier of the block scales
};
static_assert(kPlain<InputQuant>);

inline constexpr std::uint64_t kAbsent = ~std::uint64_t{0};

// How a matrix lies in records, which kernels that stream weights read (cuda/common/tile_layout.h): tiles of 16
// rows, each tile in records of `columns` columns. Gate and up share tiles, eight rows each.
struct RecordArgs {
  std::int32_t records;    // of a tile
  std::int32_t columns;    // of a record, a multiple of 64
  std::int32_t tile_rows;  // of this matrix in a tile
  std::int32_t first_row;  // of them in the tile
  std::uint64_t bytes;     // of a record
  std::uint64_t tile_bytes;
};
static_assert(kPlain<RecordArgs>);

// One matrix [rows, cols] within the pack of an expert. Offsets in bytes from the expert's first byte; kAbsent where
// the scheme has no such part. A row's codes are padded to a multiple of kColumnStep columns with codes of zero.
struct MatrixArgs {
  std::int32_t rows;
  std::int32_t cols;
  std::int32_t padded;         // columns stored
  std::int32_t group;          // columns that share a scale; `padded` where the row has one
  std::int32_t groups;         // scales of a row
  std::uint64_t codes;         // [rows, padded], or the first tile of records, which contain scales and bias
  std::uint64_t scales;        // [rows, groups]
  std::uint64_t zeros;         // [rows, groups], a byte each
  std::uint64_t bias;          // [rows] f32
  std::uint64_t order;         // [cols] int32: input column of each stored column
  std::uint64_t global_scale;  // f32
  std::uint64_t input_scale;   // f32
  RecordArgs records;
};
static_assert(kPlain<MatrixArgs>);
inline constexpr std::int32_t kColumnStep = 64;

// How the weights of a pack are to be read.
struct PackArgs {
  const std::uint8_t* weights;
  std::uint64_t expert_bytes;  // from expert to expert
  DeviceCode code;
  DeviceScale scale;
  InputKind input;
  RecordKind records;
};
static_assert(kPlain<PackArgs>);

}  // namespace moracle
