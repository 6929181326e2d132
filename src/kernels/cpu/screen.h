// The largest of a matrix's products with one row of activations, found without reading the whole matrix: what greedy
// decoding asks of a head.
//
// Beside the matrix W stands a copy S of it in 5 bits, a third to 0.45 of it. With x~, activations in 8 bits,
//
//   |W_r x - S_r x~| <= |W_r - S_r| |x| + |S_r| |x - x~|        (Cauchy-Schwarz, Euclidean norms)
//
// and a slack for what kernels round. Norms of a row are taken when it is packed, those of x when it comes. So a row
// whose product with S cannot reach a product with W that is known need not be read. For normally distributed weights
// the bound is 2.6 deviations of the products wide, which leaves one row in 20 in doubt. For those, F, four more bits
// of each weight, narrow it to 0.4 to 0.6, and what is left, some tens of rows, is computed from W as ever.
//
// Groups of 64 columns share a scale, an 8-bit multiple of the row's unit, and have codes of -15 .. 15, kept plus 16;
// F is a sixteenth of that, -8 .. 7, kept plus 8. A block is two groups, a step half of one.
//
// Rows lie in panels of 32, as those of weights do (panel.h): a lane of 32 bits belongs to a row, so that activations
// are the broadcast operand and no sum runs across a register. What prefetchers follow best is a single stream whose
// lines are read in ascending order, so a panel has, one after the other, for each block:
//
//   scales  2 x 32 bytes: u8, those of a group side by side
//   groups  2, of 16 rows after the other 16: two steps of 32 columns: a line of pairs and 4 of fives. Of a row's lane,
//           byte c of fives i: low five bits column 4i + c, high three the high three of column 16 + 4i + c; bits 2i
//           and 2i + 1 of byte c of the pairs: the low two of column 16 + 4i + c
//
// and behind the last block PanelNorms;
//
// and in another place, row by row: F, blocks x 64 bytes: of byte b, low half column b, high half column 64 + b; the
// row's scales again, blocks x 2 bytes; its ScreenNorms.
//
// Included by per-ISA files: plain structs only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moracle::cpu {

constexpr std::int64_t kScreenGroup = 64;   // columns
constexpr std::int64_t kScreenBlock = 128;  // columns
constexpr std::int64_t kScreenStep = 32;    // columns
constexpr std::int64_t kScreenGroups = kScreenBlock / kScreenGroup;
constexpr std::int64_t kScreenRows = 32;      // of a panel
constexpr std::int64_t kScreenLineRows = 16;  // whose lanes are a line
constexpr std::int64_t kScreenSteps = kScreenGroup / kScreenStep;
constexpr std::int64_t kScreenFives = 64;          // bytes of a step before its fives
constexpr std::int64_t kScreenStepBytes = 5 * 64;  // of 16 rows
constexpr std::int64_t kScreenGroupBytes = kScreenRows / kScreenLineRows * kScreenSteps * kScreenStepBytes;
constexpr std::int64_t kScreenScales = kScreenGroups * kScreenRows;  // bytes of a block before its groups
constexpr std::int64_t kScreenBlockBytes = kScreenScales + kScreenGroups * kScreenGroupBytes;
constexpr std::int64_t kFineBytes = 64;  // of F, for each block
constexpr int kScreenMost = 15;          // of a code's magnitude
constexpr int kScreenOffset = 16;
constexpr int kFineSteps = 16;  // of F in a step of the codes
constexpr int kFineOffset = 8;

// Above it, products might not cover what activations that are no normal numbers lose, 2^-126 of the norm for each.
constexpr float kMostNorm = 0x1p+26F;
// What bounds need to know of a row.
struct ScreenNorms {
  float unit;   // of the row's scales
  float error;  // |W_r - S_r|, not below it; infinite where it and the norm are above kMostNorm together
  float norm;   // |S_r|, not below it
  float left;   // |W_r - S_r - F_r|, not below it
};
struct PanelNorms {
  float unit[kScreenRows];
  float error[kScreenRows];
  float norm[kScreenRows];
};

// Bytes of a panel, and of what a row has elsewhere, both of whole lines.
constexpr std::int64_t screen_norms_at(std::int64_t blocks) {
  return blocks * kScreenBlockBytes;
}
constexpr std::int64_t screen_panel_bytes(std::int64_t blocks) {
  return screen_norms_at(blocks) + static_cast<std::int64_t>(sizeof(PanelNorms));
}
constexpr std::int64_t fine_norms_at(std::int64_t blocks) {
  return (blocks * (kFineBytes + kScreenGroups) + 15) / 16 * 16;
}
constexpr std::int64_t fine_row_bytes(std::int64_t blocks) {
  return (fine_norms_at(blocks) + static_cast<std::int64_t>(sizeof(ScreenNorms)) + 63) / 64 * 64;
}

// Activations that rows are multiplied by. Scales and starts are read in whole registers: zeros follow the last group,
// up to kScreenPadding of them.
constexpr std::int64_t kScreenPadding = 16;
struct ScreenInput {
  const std::int8_t* codes;   // [blocks * 128], -127 .. 127
  const float* scales;        // [groups]
  const std::int32_t* start;  // [groups], the sum of the group's codes times -16
  std::int64_t blocks;
};

// What is added to a product with the screen to make it a bound, for each unit of a row's error and norm.
struct ScreenMargin {
  float per_error;
  float per_norm;
  float rest;
};

// Panels that follow each other.
struct ScreenArgs {
  ScreenInput x;
  ScreenMargin margin;
  const std::byte* panels;
  std::int64_t count;
  const std::byte* after;  // the panel to be read behind them
  float* out;              // [count * 32], bounds
  bool streams;            // two panels at a time, half of all apart
};
void screen_panels_avx2(const ScreenArgs& args);
void screen_panels_avx512(const ScreenArgs& args);
void screen_panels_vnni(const ScreenArgs& args);  // AVX-512 with VNNI

// One row of F, with its scales, times the same, in sixteenths of the row's unit. AVX2.
[[nodiscard]] float screen_row_finely(const ScreenInput& x, const std::byte* fine);

// A row to be packed: its codes and scales, and its norms beside F.
struct ScreenRow {
  const float* weights;  // [blocks * 128], finite; zeros behind the last column
  std::int64_t blocks;
  std::byte* panel;
  std::int64_t row;  // of the panel
  std::byte* fine;   // [fine_row_bytes(blocks)], zeros
  float* scratch;    // [groups]
};
void pack_screen_row_avx2(const ScreenRow& row);
void pack_screen_row_avx512(const ScreenRow& row);

}  // namespace moracle::cpu
