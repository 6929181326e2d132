// Unpacking 32-bit words of 4-bit and 8-bit codes into one code a byte, row by row of the logical matrix [out, in].
// These loops set the speed of a load; they only touch words of the asked rows and write whole cache lines.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace moracle {

struct UnpackPanel {
  const std::byte* words = nullptr;  // the whole tensor; no alignment promised
  std::int64_t row_begin = 0;        // first logical row (output)
  std::int64_t rows = 0;
  std::int64_t total_rows = 0;
  std::int64_t cols = 0;        // inputs
  int bits = 4;                 // 4 or 8
  std::uint8_t* out = nullptr;  // [rows, cols]
};

// words [cols / per_word, total_rows], lowest bits = lowest column; cols is a multiple of per_word.
void unpack_words_along_in_by_in(const UnpackPanel& panel);

// words [total_rows, ceil(cols / per_word)], lowest bits = lowest column.
void unpack_words_along_in_by_out(const UnpackPanel& panel);

// 4 bits only: words [cols, total_rows / 8], nibble i holds row 8 * word + row_of_nibble[i] (all below 8); total_rows
// is a multiple of 8.
void unpack_words_along_out_by_in(const UnpackPanel& panel, const std::array<std::uint8_t, 8>& row_of_nibble);

}  // namespace moracle
