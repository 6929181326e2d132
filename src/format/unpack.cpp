#include "format/unpack.h"

#include <algorithm>
#include <cstring>

namespace moracle {
namespace {

std::uint32_t load_word(const std::byte* words, std::int64_t index) {
  std::uint32_t word;
  std::memcpy(&word, words + index * 4, sizeof word);
  return word;
}

// Eight nibbles to eight bytes, the lowest nibble first.
std::uint64_t spread_nibbles(std::uint32_t word) {
  std::uint64_t x = word;
  x = (x | x << 16) & 0x0000FFFF0000FFFFULL;
  x = (x | x << 8) & 0x00FF00FF00FF00FFULL;
  return (x | x << 4) & 0x0F0F0F0F0F0F0F0FULL;
}

// One word's codes, in column order.
template <int kBits>
void store_codes(std::uint32_t word, std::uint8_t* out) {
  if constexpr (kBits == 4) {
    const std::uint64_t codes = spread_nibbles(word);
    std::memcpy(out, &codes, sizeof codes);
  } else {
    std::memcpy(out, &word, sizeof word);
  }
}

// Tiles of 16 rows and one output cache line: 16 words are a cache line of input, so each line is read and written
// once while it is in the nearest cache.
template <int kBits>
void by_in(const UnpackPanel& panel) {
  constexpr std::int64_t kPerWord = 32 / kBits;
  constexpr std::int64_t kTileRows = 16;
  constexpr std::int64_t kTileWords = 64 / kPerWord;
  const std::int64_t words = panel.cols / kPerWord;
  for (std::int64_t w0 = 0; w0 < words; w0 += kTileWords) {
    const std::int64_t w1 = std::min(words, w0 + kTileWords);
    for (std::int64_t w = w1; w < std::min(words, w1 + kTileWords); ++w)
      for (std::int64_t r = 0; r < panel.rows; r += kTileRows)
        __builtin_prefetch(panel.words + (w * panel.total_rows + panel.row_begin + r) * 4);
    for (std::int64_t r0 = 0; r0 < panel.rows; r0 += kTileRows) {
      const std::int64_t r1 = std::min(panel.rows, r0 + kTileRows);
      for (std::int64_t r = r0; r < r1; ++r)
        for (std::int64_t w = w0; w < w1; ++w)
          store_codes<kBits>(load_word(panel.words, w * panel.total_rows + panel.row_begin + r),
                             panel.out + r * panel.cols + w * kPerWord);
    }
  }
}

template <int kBits>
void by_out(const UnpackPanel& panel) {
  constexpr std::int64_t kPerWord = 32 / kBits;
  const std::int64_t whole = panel.cols / kPerWord;
  const std::int64_t tail = panel.cols % kPerWord;
  const std::int64_t words = whole + (tail == 0 ? 0 : 1);
  for (std::int64_t r = 0; r < panel.rows; ++r) {
    const std::int64_t first = (panel.row_begin + r) * words;
    std::uint8_t* out = panel.out + r * panel.cols;
    for (std::int64_t w = 0; w < whole; ++w) store_codes<kBits>(load_word(panel.words, first + w), out + w * kPerWord);
    if (tail == 0) continue;
    std::uint8_t last[8];
    store_codes<kBits>(load_word(panel.words, first + whole), last);
    std::memcpy(out + whole * kPerWord, last, static_cast<std::size_t>(tail));
  }
}

// Exchanges the off-diagonal blocks of `shift` bits between two rows of a byte matrix.
void exchange(std::uint64_t& a, std::uint64_t& b, int shift, std::uint64_t mask) {
  const std::uint64_t t = ((a >> shift) ^ b) & mask;
  b ^= t;
  a ^= t << shift;
}

// Transposes an 8x8 byte matrix: byte j of x[i] becomes byte i of x[j].
void transpose(std::uint64_t (&x)[8]) {
  for (int i = 0; i < 4; ++i) exchange(x[i], x[i + 4], 32, 0x00000000FFFFFFFFULL);
  for (const int i : {0, 1, 4, 5}) exchange(x[i], x[i + 2], 16, 0x0000FFFF0000FFFFULL);
  for (const int i : {0, 2, 4, 6}) exchange(x[i], x[i + 1], 8, 0x00FF00FF00FF00FFULL);
}

}  // namespace

void unpack_words_along_in_by_in(const UnpackPanel& panel) {
  panel.bits == 4 ? by_in<4>(panel) : by_in<8>(panel);
}

void unpack_words_along_in_by_out(const UnpackPanel& panel) {
  panel.bits == 4 ? by_out<4>(panel) : by_out<8>(panel);
}

void unpack_words_along_out_by_in(const UnpackPanel& panel, const std::array<std::uint8_t, 8>& row_of_nibble) {
  const std::int64_t words = panel.total_rows / 8;
  const std::int64_t row_end = panel.row_begin + panel.rows;
  for (std::int64_t k = 0; k < panel.cols; k += 8) {
    const std::int64_t count = std::min<std::int64_t>(8, panel.cols - k);
    for (std::int64_t word = panel.row_begin / 8; word * 8 < row_end; ++word) {
      std::uint64_t block[8] = {};
      for (std::int64_t i = 0; i < count; ++i)
        block[i] = spread_nibbles(load_word(panel.words, (k + i) * words + word));
      transpose(block);
      for (std::size_t nibble = 0; nibble < 8; ++nibble) {
        const std::int64_t row = word * 8 + row_of_nibble[nibble] - panel.row_begin;
        if (row < 0 || row >= panel.rows) continue;
        std::memcpy(panel.out + row * panel.cols + k, &block[nibble], static_cast<std::size_t>(count));
      }
    }
  }
}

}  // namespace moracle
