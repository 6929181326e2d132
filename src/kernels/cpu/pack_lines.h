// Canonical rows to the lines of a panel (see panel.h): a line is 128 bytes, one u32 of each of 32 rows.
//
// Included by a per-ISA file: plain structs only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/panel.h"

namespace moracle::cpu {

// Columns of a line: 8 codes of 4 bits, 4 of 8 bits, 2 values of 16 bits, 1 of 32 bits.
constexpr std::int64_t line_columns(PanelCode code) {
  if (code == PanelCode::q4 || code == PanelCode::e2m1) return 8;
  if (code == PanelCode::q8 || code == PanelCode::e4m3) return 4;
  return code == PanelCode::f32 ? 1 : 2;
}

struct LineArgs {
  PanelCode code;
  const std::byte* rows;  // first column of the first row: a byte a code, or f32 values of dense codes; all finite
  std::int64_t stride;    // bytes from row to row
  std::int64_t count;     // rows, at most 32; those that are missing become zeros
  std::int64_t columns;   // what the last line has beyond them is code 0
  std::int64_t lines;
  std::byte* out;
  std::int64_t group_lines;  // after so many lines ...
  std::int64_t group_tail;   // ... so many bytes are left out, for scales and zero points
};

void pack_lines(const LineArgs& args);

}  // namespace moracle::cpu
