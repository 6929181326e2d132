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
// F is a sixteenth of that, -8 .. 7, kept plus 8. A block is two groups. A row has, one after the other:
//
//   bytes    blocks x 64 bytes: byte b of a block: low five bits column b, high three the high three of column 64 + b
//   pairs    blocks x 16 bytes: bits 2i and 2i + 1 of byte b: the low two of column 64 + 16i + b
//   scales   blocks x 2 bytes: u8
//
// Rows begin on whole kScreenAlign bytes, so that no load of a register crosses a line.
//
// and in another place F, blocks x 64 bytes: low half column b, high half column 64 + b.
//
// Included by per-ISA files: plain structs only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moracle::cpu {

constexpr std::int64_t kScreenGroup = 64;   // columns
constexpr std::int64_t kScreenBlock = 128;  // columns
constexpr std::int64_t kScreenGroups = kScreenBlock / kScreenGroup;
constexpr std::int64_t kScreenBytes = 64;  // of a block
constexpr std::int64_t kScreenPairs = 16;
constexpr std::int64_t kScreenRowBytes = kScreenBytes + kScreenPairs + kScreenGroups;  // for each block
constexpr std::int64_t kScreenAlign = 32;
constexpr std::int64_t kFineBytes = 64;  // of F, for each block
constexpr int kScreenMost = 15;          // of a code's magnitude
constexpr int kScreenOffset = 16;
constexpr int kFineSteps = 16;  // of F in a step of the codes
constexpr int kFineOffset = 8;

// Activations that rows are multiplied by. Scales and starts are read in whole registers: zeros follow the last group,
// up to kScreenPadding of them.
constexpr std::int64_t kScreenPadding = 16;
struct ScreenInput {
  const std::int8_t* codes;  // [blocks * 128], -127 .. 127
  const float* scales;       // [groups]
  const float* start;        // [groups], the sum of the group's codes times -16
  std::int64_t blocks;
};

// Rows that follow each other, in memory that goes on for kScreenPadding bytes behind them.
struct ScreenArgs {
  ScreenInput x;
  const std::byte* rows;
  std::int64_t row_bytes;  // from one to the next
  std::int64_t count;
  const std::byte* after;  // the row to be read behind them
  float* out;              // [count], in the rows' units
  bool streams;            // read from two places in turn, half of the rows apart
};
void screen_rows_avx2(const ScreenArgs& args);
void screen_rows_avx512(const ScreenArgs& args);
void screen_rows_vnni(const ScreenArgs& args);  // AVX-512 with VNNI

// One row of F, [blocks * 64], times the same, in sixteenths of the row's unit. `row` is that of the codes, for its
// scales. AVX2.
[[nodiscard]] float screen_row_finely(const ScreenInput& x, const std::byte* row, const std::byte* fine);

// What bounds need to know of a row.
struct ScreenNorms {
  float unit;   // of the row's scales
  float error;  // |W_r - S_r|, not below it
  float norm;   // |S_r|, not below it
  float left;   // |W_r - S_r - F_r|, not below it
};
struct ScreenRow {
  const float* weights;  // [blocks * 128], finite; zeros behind the last column
  std::int64_t blocks;
  std::byte* row;
  std::byte* fine;
  float* scratch;  // [groups]
};
[[nodiscard]] ScreenNorms pack_screen_row_avx2(const ScreenRow& row);
[[nodiscard]] ScreenNorms pack_screen_row_avx512(const ScreenRow& row);

}  // namespace moracle::cpu
