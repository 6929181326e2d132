// Canonical rows to the lines of a panel (see panel.h): a line is 128 bytes, one u32 of each of 32 rows.
//
// Included by a per-ISA file: plain structs only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/weights/panel.h"

namespace moracle::cpu {

// Columns of a line: 8 codes of 4 bits, 4 of 8 bits, 2 values of 16 bits, 1 of 32 bits.
constexpr std::int64_t line_columns(WeightCode code) {
  return kStepColumns * kPanelRows * 4 / step_bytes(code);
}

struct LineArgs {
  WeightCode code;
  const std::byte* rows;  // first column of the first row: a byte a code, or f32 values of dense codes; all finite
  std::int64_t stride;    // bytes from row to row
  std::int64_t count;     // rows, at most 32; those that are missing become zeros
  std::int64_t columns;   // what the last line has beyond them is code 0
  std::int64_t lines;
  std::byte* out;
  std::int64_t group_lines;  // after so many lines ...
  std::int64_t group_tail;   // ... so many bytes are left out, for scales and zero points
  // Rows are elements of the code's own width, in whole words, lowest bits first (RawCodes), and unchecked.
  bool raw;
  std::uint8_t flip;  // of `raw`: bits of a byte in which they differ from canonical codes
};

// The same of raw codes that lie as in a line, those of neighbouring rows side by side: many panels at once, so that
// long runs are read.
struct WordLineArgs {
  WeightCode code;
  const std::byte* words;  // of the first row and column
  std::int64_t stride;     // bytes from the words of a line to those of the next
  std::int64_t rows;       // of all panels; those that are missing in the last one become zeros
  std::int64_t columns;    // in words; what lines have beyond them is code 0
  std::int64_t lines;
  std::byte* out;             // of the first line
  std::int64_t panel_stride;  // bytes from panel to panel
  std::int64_t group_left;    // lines that the first one's group still has
  std::int64_t group_lines;
  std::int64_t group_tail;
  std::uint8_t flip;
};

// Stored scales of 32 rows in the width of the panel: f32, f16, bf16, e4m3 or e8m0. Scales of a row lie side by side,
// or those of a group do.
struct ScaleColumnArgs {
  ScaleCode form;
  const std::byte* scales;  // of the first row and group; 32 bytes behind the last one may be read
  std::int64_t row_bytes;   // from row to row
  std::int64_t group_bytes;
  std::int64_t groups;
  std::byte* out;  // [groups][32]
};

// The packing of an architecture's targets. Where a function returns false, what it has written is useless.
struct Packing {
  bool (*lines)(const LineArgs&);           // false: met a NaN, or an infinity of a dense code
  bool (*word_lines)(const WordLineArgs&);  // likewise
  // False: one is zero, infinite or NaN (of e8m0, also the least, which stands for nothing).
  bool (*scale_columns)(const ScaleColumnArgs&);
  // Scales of 32 rows, `stride` floats apart, in the width of the panel: f32, f16 or bf16.
  void (*scale_column)(ScaleCode form, const float* scales, std::int64_t stride, std::byte* out);
  // One panel of `steps` steps, from WeightCode::bf16 at `plain` to WeightCode::bf16x12 at `out` (bf16x12-inl.h).
  // False: more weights fall outside than a tail holds.
  bool (*bf16x12)(const std::byte* plain, std::int64_t steps, std::byte* out);
};
extern const Packing kPacking;

}  // namespace moracle::cpu
