// The layout of kernels that stream weights: one bulk copy brings what a tile of 16 rows needs of some columns.
//
//   tile     16 rows: of w2 as they come; of w13 eight rows of gate and the same eight of up
//   record   a tile's codes of up to RecordForm::most_columns, then their scales, then 16 scales of rows in f32, where
//            the form has them; behind a tile's last record 16 biases in f32
//   codes    in the order of registers: a lane's 16 bytes are A fragments of mma.m16n8k16, four of 4-bit codes, two of
//            8-bit and one of 16-bit ones, lane after lane; 64 columns after 64 columns. Columns are permuted within
//            32, so that a lane's inputs are 16 bytes as well.
//   scales   for each row of the upper half its scale and that of the row 8 below, of 128 or 64 columns at a time
#pragma once

#include <cstdint>

#include "kernels/args/experts.h"
#include "kernels/cuda/common/arithmetic.h"

namespace moracle::cuda {

inline constexpr int kTileRows = 16;
inline constexpr int kPairColumns = 64;  // columns of four fragments

struct RecordForm {
  DeviceCode code;
  int group;        // columns under one scale; 0: records have no scales
  int scale_bytes;  // of one
  bool row_scales;
  bool bias;
  int most_columns;    // of a record; twice as many where a tile would have more than kMostRecords
  float input_factor;  // of inputs
  float code_factor;   // of scales; both together give back what codes lack
  bool nibbles;        // E2M1's codes lie as a lookup by bytes takes them
};
// E2M1 becomes a bf16 number whose exponent counts from 1, 2^-126 of its value, E4M3 one of 2^-120: exact, by shifts.
// Inputs are 2^64 of theirs, so that no product leaves f32.
constexpr RecordForm record_form(RecordKind kind) {
  switch (kind) {
    case RecordKind::int4_bf16:
    case RecordKind::int4_f16:
      return {DeviceCode::int4, 128, 2, false, false, 1024, 1.0F, 1.0F, false};
    case RecordKind::int8_row:
      return {DeviceCode::int8, 0, 0, true, true, 1024, 1.0F, 1.0F, false};
    case RecordKind::int8_split:
      return {DeviceCode::int8, 128, 4, false, true, 1024, 1.0F, 1.0F, false};
    case RecordKind::e4m3_row:
      return {DeviceCode::e4m3, 0, 0, true, true, 1024, 0x1p64F, 0x1p56F, false};
    case RecordKind::e4m3_split:
      return {DeviceCode::e4m3, 128, 4, false, true, 1024, 0x1p64F, 0x1p56F, false};
    case RecordKind::mxfp4:
      return {DeviceCode::e2m1, 32, 1, false, true, 1024, 0x1p64F, 1.0F, false};
    case RecordKind::mxfp4_row:
      return {DeviceCode::e2m1, 32, 1, true, true, 1024, 1.0F, 1.0F, true};
    case RecordKind::nvfp4:
      return {DeviceCode::e2m1, 16, 1, true, true, 1024, 0x1p64F, 1.0F, false};
    case RecordKind::bf16:
    case RecordKind::none:
      break;
  }
  return {DeviceCode::bf16, 0, 0, false, true, 512, 1.0F, 1.0F, false};
}
// What grouped products multiply (cuda/sm90/prefill).
enum class Operand { bf16, int8, e4m3 };
// Bytes where both the weights and the inputs of a scheme are bytes exactly.
constexpr Operand operand_of(RecordKind records, InputKind input) {
  const bool int8 = input == InputKind::int8_token || input == InputKind::int8_tensor;
  const bool e4m3 = input == InputKind::e4m3_token || input == InputKind::e4m3_tensor;
  switch (records) {
    case RecordKind::int4_bf16:
    case RecordKind::int4_f16:
      return int8 ? Operand::int8 : e4m3 ? Operand::e4m3 : Operand::bf16;
    case RecordKind::int8_row:
      return int8 ? Operand::int8 : Operand::bf16;
    case RecordKind::e4m3_row:
      return e4m3 ? Operand::e4m3 : Operand::bf16;
    case RecordKind::e4m3_split:
      return input == InputKind::e4m3_group ? Operand::e4m3 : Operand::bf16;
    case RecordKind::mxfp4_row:
      return Operand::e4m3;
    default:
      break;
  }
  return Operand::bf16;
}
// Columns that codes and scales come in.
constexpr int record_step(const RecordForm& form) {
  return form.group > kPairColumns ? form.group : kPairColumns;
}
// The fewest records of equal length, of whole steps each. `cols` is a multiple of the step. Two warps share a record.
constexpr int records_of(const RecordForm& form, int cols) {
  constexpr int kMostRecords = 8;
  const int most = cols > kMostRecords * form.most_columns ? 2 * form.most_columns : form.most_columns;
  const int steps = cols / record_step(form);
  int records = (cols + most - 1) / most;
  while (records < steps && steps % records != 0) ++records;
  return records;
}
// 16-byte words of the rows that blocks of the decoding pass hand to each other in its largest call. Intermediate rows
// are bf16; where inputs are quantized under scales of their own maxima they are f32 and codes of 16 bits, as inputs
// are, and each row of codes has its scales behind it. Rows of codes begin on cache lines.
constexpr std::int64_t decode_row_words(InputKind input, std::int64_t hidden, std::int64_t intermediate) {
  constexpr std::int64_t kLineWords = 8;
  const bool measured = input != InputKind::bf16 && !has_stored_scale(input);
  const auto codes = [&](std::int64_t cols) {
    const std::int64_t scales = !measured ? 0 : input_group(input) > 0 ? cols / 128 : 1;
    return (cols / 8 + (scales + 3) / 4 + kLineWords - 1) / kLineWords * kLineWords;
  };
  const std::int64_t pairs = kDecodePairs * (codes(intermediate) + (measured ? intermediate / 4 : 0));
  return (measured ? kDecodeTokens * codes(hidden) : 0) + pairs;
}
// Of a tile's codes.
constexpr int code_bytes(const RecordForm& form, int columns) {
  return columns * kTileRows * bits_of(form.code) / 8;
}
constexpr int record_bytes(const RecordForm& form, int columns) {
  const int groups = form.group > 0 ? columns / form.group : 0;
  return code_bytes(form, columns) + groups * kTileRows * form.scale_bytes + (form.row_scales ? kTileRows * 4 : 0);
}
constexpr int tail_bytes(const RecordForm& form) {
  return form.bias ? kTileRows * 4 : 0;
}
constexpr int tile_bytes(const RecordForm& form, int cols) {
  const int records = records_of(form, cols);
  return records * record_bytes(form, cols / records) + tail_bytes(form);
}

// Where a code stands in its word: `reg` the register of the A fragment, whose lowest bit chooses the lower eight rows
// and whose next one the upper eight columns of sixteen; `half` the half of the register.
struct CodePlace {
  int reg;
  int half;
};
// In nibbles E2M1's magnitudes are those of a row's four columns, in the order of bytes, in 16 bits, and its signs the
// highest bits of four bytes, those of the lower rows four bits below.
//
// Else E2M1 in 16 bits, so that a shift and a mask leave sign and magnitude where bf16 has its sign, the lowest two
// bits of its exponent and the highest of its mantissa: register 0 in bits 15, 8-6; 1 in 12, 5-3; 2 in 9, 2-0; 3 in 14,
// 11, 10,
// 13. Of 8 bits a word has the registers of one row, the left columns in the lower byte of each half.
MORACLE_BOTH std::uint32_t code_at(const RecordForm& form, std::uint32_t word, CodePlace place) {
  const DeviceCode code = form.code;
  if (form.nibbles) {
    const int byte = place.reg / 2 + 2 * place.half;
    return (word >> (8 * byte + (place.reg % 2 == 0 ? 7 : 3)) & 1U) << 3 |
           (word >> (16 * (place.reg % 2) + 4 * byte) & 7U);
  }
  const std::uint32_t half = word >> (16 * place.half);
  if (code == DeviceCode::int4) return half >> (4 * place.reg) & 15U;
  if (bits_of(code) == 8) return half >> (8 * (place.reg / 2)) & 255U;
  if (bits_of(code) == 16) return half & 0xFFFFU;
  if (place.reg == 3) return (half >> 14 & 1U) << 3 | (half >> 10 & 3U) << 1 | (half >> 13 & 1U);
  return (half >> (15 - 3 * place.reg) & 1U) << 3 | (half >> (6 - 3 * place.reg) & 7U);
}
constexpr std::uint32_t code_bits(const RecordForm& form, std::uint32_t value, CodePlace place) {
  const DeviceCode code = form.code;
  if (form.nibbles) {
    const int byte = place.reg / 2 + 2 * place.half;
    return (value >> 3 & 1U) << (8 * byte + (place.reg % 2 == 0 ? 7 : 3)) | (value & 7U)
                                                                                << (16 * (place.reg % 2) + 4 * byte);
  }
  std::uint32_t half = 0;
  if (code == DeviceCode::int4) {
    half = value << (4 * place.reg);
  } else if (bits_of(code) == 8) {
    half = value << (8 * (place.reg / 2));
  } else if (bits_of(code) == 16) {
    half = value;
  } else if (place.reg == 3) {
    half = (value >> 3 & 1U) << 14 | (value >> 1 & 3U) << 10 | (value & 1U) << 13;
  } else {
    half = (value >> 3 & 1U) << (15 - 3 * place.reg) | (value & 7U) << (6 - 3 * place.reg);
  }
  return half << (16 * place.half);
}

// Addresses of one matrix in records, from its first tile.
MORACLE_BOTH int tile_row(const RecordArgs& args, int row) {
  return args.first_row + row % args.tile_rows;
}
MORACLE_BOTH std::uint64_t record_offset(const RecordArgs& args, int row, int column) {
  return static_cast<std::uint64_t>(row / args.tile_rows) * args.tile_bytes +
         static_cast<std::uint64_t>(column / args.columns) * args.bytes;
}
// Of the words that hold columns [column, column + 8) of a row, `column` a multiple of 8.
MORACLE_BOTH std::uint64_t words_offset(const RecordForm& form, const RecordArgs& args, int row, int column) {
  const int inside = column % args.columns;
  const int lane = tile_row(args, row) % 8 * 4 + inside % 32 / 8;
  const int bits = bits_of(form.code);
  const int half = inside % kPairColumns / 32;  // of 64 columns
  return record_offset(args, row, column) +
         static_cast<std::uint64_t>(inside / kPairColumns * (128 * bits) + lane * 16 +
                                    (bits == 4 ? half * 8 : half * (64 * bits)));
}
MORACLE_BOTH CodePlace place_of(const RecordArgs& args, int row, int i) {
  return {tile_row(args, row) / 8 + i % 4 / 2 * 2, i % 2};
}
// The word of column `i` of the eight, from the first one: bytes.
MORACLE_BOTH int word_step(const RecordForm& form, CodePlace place, int i) {
  const int bits = bits_of(form.code);
  if (bits == 4) return i / 4 * 4;
  if (bits == 8) return i / 4 * 8 + place.reg % 2 * 4;
  return i / 4 * 512 + place.reg * 4;
}
// Code of one column.
MORACLE_BOTH std::uint32_t record_code(const RecordForm& form, const RecordArgs& args, const std::uint8_t* codes,
                                       int row, int column) {
  const CodePlace place = place_of(args, row, column % 8);
  const std::uint64_t at =
      words_offset(form, args, row, column / 8 * 8) + static_cast<std::uint64_t>(word_step(form, place, column % 8));
  return code_at(form, *reinterpret_cast<const std::uint32_t*>(codes + at), place);
}
// The first byte of the scale of a column's group.
MORACLE_BOTH std::uint64_t scale_offset(const RecordForm& form, const RecordArgs& args, int row, int column) {
  const int inside = column % args.columns;
  const int at = tile_row(args, row);
  const std::uint64_t first =
      record_offset(args, row, column) + static_cast<std::uint64_t>(code_bytes(form, args.columns));
  const int size = form.scale_bytes;
  int offset = 0;
  if (form.group == 128) {
    offset = inside / 128 * (kTileRows * size) + at % 8 * (2 * size) + at / 8 * size;
  } else if (form.group == 32) {
    offset = inside / kPairColumns * 32 + at % 8 * 4 + at / 8 * 2 + inside / 32 % 2;
  } else {  // of 16 columns, which half of the lanes of a row have
    offset = inside / kPairColumns * 64 + at % 8 * 8 + inside / 16 % 2 * 4 + at / 8 * 2 + inside / 32 % 2;
  }
  return first + static_cast<std::uint64_t>(offset);
}
// Of a row's scale in the record of a column, and of its bias.
MORACLE_BOTH std::uint64_t row_scale_offset(const RecordArgs& args, int row, int column) {
  return record_offset(args, row, column) + args.bytes +
         static_cast<std::uint64_t>(tile_row(args, row) - kTileRows) * sizeof(float);
}
MORACLE_BOTH std::uint64_t bias_offset(const RecordArgs& args, int row) {
  return record_offset(args, row, 0) + static_cast<std::uint64_t>(args.records) * args.bytes +
         static_cast<std::uint64_t>(tile_row(args, row)) * sizeof(float);
}

// Steps of mxfp4_row, 1 to 12: E4M3 holds every E2M1 number times 2^(step - 6). As E8M0 they are 2^(step - 6).
inline constexpr int kE4m3Steps = 12;
inline constexpr int kE4m3StepBias = 121;

// Scales of E4M3 as 5 bits of exponent and 3 of mantissa, in which none is subnormal. 0 stands for zero.
inline constexpr int kE5m3Bias = 11;
constexpr std::uint8_t encode_e5m3(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (!(value > 0.0F)) return 0;
  return static_cast<std::uint8_t>(((bits >> 23) - 127 + kE5m3Bias) << 3 | (bits >> 20 & 7U));
}
MORACLE_BOTH float decode_e5m3(std::uint8_t code) {
  if (code == 0) return 0.0F;
  return std::bit_cast<float>(((code >> 3) + 127U - kE5m3Bias) << 23 | (code & 7U) << 20);
}

}  // namespace moracle::cuda
