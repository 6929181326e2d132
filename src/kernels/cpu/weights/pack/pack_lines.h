// Canonical rows to the lines of a panel (see panel.h): a line is 128 bytes, one u32 of each of 32 rows.
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
  WeightCode code{};
  const std::byte* from = nullptr;  // of the first row and column: a byte a code, or f32 of dense codes; all finite
  std::int64_t stride = 0;          // bytes from row to row; of word_lines, from a line's words to those of the next
  std::int64_t rows = 0;            // those that are missing in the last panel become zeros
  std::int64_t columns = 0;         // what the last line has beyond them is code 0
  std::int64_t lines = 0;
  std::byte* out = nullptr;       // of the first line
  std::int64_t group_left = 0;    // lines that the first one's group still has
  std::int64_t group_lines = 0;   // after so many lines ...
  std::int64_t group_tail = 0;    // ... so many bytes are left out, for scales and zero points
  std::int64_t panel_stride = 0;  // of word_lines: bytes from panel to panel
  // Elements have the code's own width, in whole words, lowest bits first (RawCodes), and are unchecked.
  bool raw = false;
  std::uint8_t flip = 0;  // of `raw`: bits of a byte in which they differ from canonical codes
};

// The packing of an architecture's targets. A function that returns false leaves useless bytes in its output.
struct Packing {
  bool (*lines)(const LineArgs&);  // one panel; returns false at a NaN, and at an infinity of a dense code
  // Many panels at once, for long reads: of raw codes that lie as in a line, those of neighbouring rows side by side.
  // Returns false where lines() does.
  bool (*word_lines)(const LineArgs&);
  // Of 32 rows, `stride` bytes apart: 4, or their width, in which they are kept. Returns false at a scale that is zero,
  // infinite or NaN, and at the least of e8m0.
  bool (*stored_scales)(ScaleCode form, const std::byte* scales, std::int64_t stride, std::byte* out);
  void (*scale_column)(ScaleCode form, const float* scales, std::byte* out);  // of 32 rows, to f32, f16 or bf16
  // One panel of `steps` steps, from WeightCode::bf16 at `plain` to WeightCode::bf16x12 at `out` (bf16x12-inl.h).
  // Returns false where the panel has more exceptions than a tail holds.
  bool (*bf16x12)(const std::byte* plain, std::int64_t steps, std::byte* out);
};
extern const Packing kPacking;

}  // namespace moracle::cpu
