// Matrices of 4-, 6- and 8-bit codes that are stored in bytes, with scales per tensor, row, group or block: one reader
// for every publisher, who differ only in names, scale types and where a matrix lies inside its tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "format/decode/packed_int.h"
#include "scheme/canonical.h"

namespace moracle {

// How codes lie in bytes.
enum class CodeForm : std::uint8_t {
  bytes,         // one float code a byte
  signed_bytes,  // two's complement integers, a byte each: int8, or int4 held in bytes
  nibbles,       // two a byte, the low half is the lower index
  six_bits       // four in three bytes, lowest bits first
};

// The rows of one matrix inside a tensor of `total_rows` rows: `row_begin`, `row_begin + row_stride`, ...
struct RowGrid {
  TensorView tensor;        // of stacked experts, the bytes of one
  std::int64_t origin = 0;  // flat index of its first element in the whole tensor, for messages
  std::int64_t row_begin = 0;
  std::int64_t row_stride = 1;
  std::int64_t total_rows = 0;
  bool transposed = false;  // stored column by column

  [[nodiscard]] std::int64_t stored_row(std::int64_t row) const { return row_begin + row * row_stride; }
};

struct CodeMatrix {
  CodeForm form = CodeForm::bytes;
  RowGrid codes{};
  RowGrid scales{};
  // Stored rows that share a row of scales: 1 for channels and groups, the height of a block, 0 when all share one.
  std::int64_t scale_rows = 1;
  std::vector<std::uint8_t> zeros{};  // offset-binary zero points [rows, groups]; empty when symmetric
};

// Shapes and dtypes have been checked by the caller. Reading reports NaN codes, scales that are NaN or infinite, and
// scales that are all zero.
std::shared_ptr<const MatrixSource> make_code_matrix(MatrixSpec spec, CodeMatrix matrix,
                                                     std::shared_ptr<const Checkpoint> checkpoint,
                                                     std::shared_ptr<ValueNotes> notes);

}  // namespace moracle
