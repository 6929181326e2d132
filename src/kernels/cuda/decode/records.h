// The layout of kernels that stream weights: one bulk copy brings what a tile of 16 rows needs of some columns.
//
//   tile     16 rows: of w2 as they come; of w13 eight rows of gate and the same eight of up
//   record   a tile's codes of up to 1024 columns, then their scales; behind a tile's last record 16 biases in f32,
//            where the code has them
//   codes    in the order of registers: a lane's 16 bytes are four A fragments of mma.m16n8k16, lane after lane, 64
//            columns after 64 columns. Columns are permuted within 32, so that a lane's inputs are 16 bytes as well.
//   scales   a 32-bit word for each row of the upper half: its scale and that of the row 8 below; E8M0 in bytes, the
//   two
//            groups of 64 columns beside each other
#pragma once

#include <cstdint>

#include "device/launch_args.h"
#include "kernels/cuda/arithmetic.h"

namespace moracle::cuda {

inline constexpr int kTileRows = 16;
inline constexpr int kPairColumns = 64;  // columns of four fragments, which one 16-byte load of a lane brings
inline constexpr int kMostRecordColumns = 1024;

// What the codes of a record are beside bits.
struct RecordForm {
  int group;        // columns under one scale
  int scale_bytes;  // of one
  bool bias;
};
constexpr RecordForm record_form(DeviceCode code) {
  return code == DeviceCode::int4 ? RecordForm{128, 2, false} : RecordForm{32, 1, true};
}
constexpr int records_of(int cols) {
  return (cols + kMostRecordColumns - 1) / kMostRecordColumns;
}
constexpr std::uint64_t record_bytes(DeviceCode code, int columns) {
  const RecordForm form = record_form(code);
  const int bytes = columns * kTileRows / 2 + columns / form.group * kTileRows * form.scale_bytes;
  return static_cast<std::uint64_t>(bytes);
}
constexpr std::uint64_t tile_bytes(DeviceCode code, int cols) {
  const int records = records_of(cols);
  const std::uint64_t bias = record_form(code).bias ? kTileRows * sizeof(float) : 0;
  return static_cast<std::uint64_t>(records) * record_bytes(code, cols / records) + bias;
}

// Where a code stands in its word: `reg` the register of the A fragment, whose lowest bit chooses the lower eight rows
// and whose next one the upper eight columns of sixteen; `low` the half of the register.
struct CodePlace {
  int reg;
  int half;
};
// E2M1 in 16 bits, so that a shift and a mask leave sign and magnitude where bf16 has its sign, the lowest two bits of
// its exponent and the highest of its mantissa: register 0 in bits 15, 8-6; 1 in 12, 5-3; 2 in 9, 2-0; 3 in 14, 11, 10,
// 13.
MORACLE_BOTH std::uint32_t code_at(DeviceCode code, std::uint32_t word, CodePlace place) {
  const std::uint32_t half = word >> (16 * place.half);
  if (code == DeviceCode::int4) return half >> (4 * place.reg) & 15U;
  if (place.reg == 3) return (half >> 14 & 1U) << 3 | (half >> 10 & 3U) << 1 | (half >> 13 & 1U);
  return (half >> (15 - 3 * place.reg) & 1U) << 3 | (half >> (6 - 3 * place.reg) & 7U);
}
constexpr std::uint32_t code_bits(DeviceCode code, std::uint32_t value, CodePlace place) {
  std::uint32_t half = 0;
  if (code == DeviceCode::int4) {
    half = value << (4 * place.reg);
  } else if (place.reg == 3) {
    half = (value >> 3 & 1U) << 14 | (value >> 1 & 3U) << 10 | (value & 1U) << 13;
  } else {
    half = (value >> 3 & 1U) << (15 - 3 * place.reg) | (value & 7U) << (6 - 3 * place.reg);
  }
  return half << (16 * place.half);
}

// Addresses of one matrix in records: `codes` is its first tile.
MORACLE_BOTH int tile_row(const RecordArgs& args, int row) {
  return args.first_row + row % args.tile_rows;
}
MORACLE_BOTH std::uint64_t record_offset(const RecordArgs& args, int row, int column) {
  return static_cast<std::uint64_t>(row / args.tile_rows) * args.tile_bytes +
         static_cast<std::uint64_t>(column / args.columns) * args.bytes;
}
// Of the two words that hold columns [column, column + 8) of a row, `column` a multiple of 8.
MORACLE_BOTH std::uint64_t words_offset(const RecordArgs& args, int row, int column) {
  const int inside = column % args.columns;
  const int lane = tile_row(args, row) % 8 * 4 + inside % 32 / 8;
  return record_offset(args, row, column) + static_cast<std::uint64_t>(inside / kPairColumns * 512) +
         static_cast<std::uint64_t>(lane * 16 + inside % kPairColumns / 32 * 8);
}
// Place of column `i` of the eight: in word i / 4 of the two.
MORACLE_BOTH CodePlace place_of(const RecordArgs& args, int row, int i) {
  return {tile_row(args, row) / 8 + i % 4 / 2 * 2, i % 2};
}
// These eight codes, the first in the lowest bits.
MORACLE_BOTH std::uint32_t record_word(DeviceCode code, const RecordArgs& args, const std::uint8_t* codes, int row,
                                       int column) {
  const auto* const words = reinterpret_cast<const std::uint32_t*>(codes + words_offset(args, row, column));
  std::uint32_t word = 0;
  for (int i = 0; i < 8; ++i) word |= code_at(code, words[i / 4], place_of(args, row, i)) << (4 * i);
  return word;
}
MORACLE_BOTH std::uint64_t scale_offset(DeviceCode code, const RecordArgs& args, int row, int column) {
  const int inside = column % args.columns;
  const int at = tile_row(args, row);
  const std::uint64_t word = record_offset(args, row, column) + static_cast<std::uint64_t>(args.columns * 8) +
                             static_cast<std::uint64_t>(at % 8 * 4 + at / 8 * 2);
  if (code == DeviceCode::int4) return word + static_cast<std::uint64_t>(inside / 128 * 32);
  return word + static_cast<std::uint64_t>(inside / kPairColumns * 32 + inside / 32 % 2);
}
MORACLE_BOTH std::uint64_t bias_offset(const RecordArgs& args, int row) {
  return record_offset(args, row, 0) + static_cast<std::uint64_t>(args.records) * args.bytes +
         static_cast<std::uint64_t>(tile_row(args, row)) * sizeof(float);
}

}  // namespace moracle::cuda
