#include "format/decode/unpack.h"

#include <algorithm>
#include <bit>
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

// Four words and sixteen codes at a time, in the vector types that both compilers know on every machine.
using Words = std::uint32_t __attribute__((vector_size(16)));
using Bytes = std::uint8_t __attribute__((vector_size(16)));

Words load_words(const std::byte* words, std::int64_t index) {
  Words four;
  std::memcpy(&four, words + index * 4, sizeof four);
  return four;
}

// The codes of four consecutive words of one row: 32 codes of 4 bits or 16 of 8 bits.
template <int kBits>
void store_codes(Words four, std::uint8_t* out) {
  if constexpr (kBits == 4) {
    const auto low = std::bit_cast<Bytes>(four & 0x0F0F0F0FU);
    const auto high = std::bit_cast<Bytes>(four >> 4 & 0x0F0F0F0FU);
    const Bytes first = __builtin_shufflevector(low, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const Bytes second =
        __builtin_shufflevector(low, high, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    std::memcpy(out, &first, sizeof first);
    std::memcpy(out + sizeof first, &second, sizeof second);
  } else {
    std::memcpy(out, &four, sizeof four);
  }
}

// Four rows of four consecutive words from `words` on, which are `stride` bytes apart: a 4x4 transposition of words,
// then the codes, `cols` from row to row.
template <int kBits>
void by_in_block(const std::byte* words, std::int64_t stride, std::uint8_t* out, std::int64_t cols) {
  Words x[4];
  for (std::int64_t i = 0; i < 4; ++i) x[i] = load_words(words + i * stride, 0);
  const Words a = __builtin_shufflevector(x[0], x[1], 0, 4, 1, 5);
  const Words b = __builtin_shufflevector(x[2], x[3], 0, 4, 1, 5);
  const Words c = __builtin_shufflevector(x[0], x[1], 2, 6, 3, 7);
  const Words d = __builtin_shufflevector(x[2], x[3], 2, 6, 3, 7);
  store_codes<kBits>(__builtin_shufflevector(a, b, 0, 1, 4, 5), out);
  store_codes<kBits>(__builtin_shufflevector(a, b, 2, 3, 6, 7), out + cols);
  store_codes<kBits>(__builtin_shufflevector(c, d, 0, 1, 4, 5), out + 2 * cols);
  store_codes<kBits>(__builtin_shufflevector(c, d, 2, 3, 6, 7), out + 3 * cols);
}

// One output cache line of every row at a time: 16 rows are a cache line of input, so that lines are read and written
// while they are in the nearest cache. By value: bytes that are written might otherwise be the panel's own members.
template <int kBits>
void by_in(const UnpackPanel panel) {
  constexpr std::int64_t kPerWord = 32 / kBits;
  constexpr std::int64_t kLineWords = 64 / kPerWord;
  const std::int64_t words = panel.cols / kPerWord;
  const std::int64_t stride = panel.total_rows * 4;
  const std::byte* const first = panel.words + panel.row_begin * 4;
  const std::int64_t block_rows = panel.rows / 4 * 4;
  for (std::int64_t w0 = 0; w0 < words; w0 += kLineWords) {
    const std::int64_t w1 = std::min(words, w0 + kLineWords);
    for (std::int64_t w = w1; w < std::min(words, w1 + kLineWords); ++w)
      for (std::int64_t r = 0; r < panel.rows; r += 16) __builtin_prefetch(first + w * stride + r * 4);
    const std::int64_t block_words = w0 + (w1 - w0) / 4 * 4;
    for (std::int64_t r = 0; r < block_rows; r += 4)
      for (std::int64_t w = w0; w < block_words; w += 4)
        by_in_block<kBits>(first + w * stride + r * 4, stride, panel.out + r * panel.cols + w * kPerWord, panel.cols);
    for (std::int64_t r = 0; r < panel.rows; ++r)
      for (std::int64_t w = r < block_rows ? block_words : w0; w < w1; ++w)
        store_codes<kBits>(load_word(first + w * stride, r), panel.out + r * panel.cols + w * kPerWord);
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

// Exchanges the off-diagonal blocks of `shift` bits between two rows.
template <class Row>
void exchange(Row& a, Row& b, int shift, std::uint32_t mask) {
  const Row t = ((a >> shift) ^ b) & mask;
  b ^= t;
  a ^= t << shift;
}

// Transposes an 8x8 matrix of nibbles, one row a word: nibble j of x[i] becomes nibble i of x[j]. Of Words, four such
// matrices at once.
template <class Row>
void transpose_nibbles(Row (&x)[8]) {
  for (int i = 0; i < 4; ++i) exchange(x[i], x[i + 4], 16, 0x0000FFFFU);
  for (const int i : {0, 1, 4, 5}) exchange(x[i], x[i + 2], 8, 0x00FF00FFU);
  for (const int i : {0, 2, 4, 6}) exchange(x[i], x[i + 1], 4, 0x0F0F0F0FU);
}

// 32 columns from k of the eight rows of word column `word`, into out[i] of nibble i; out is null outside of the panel.
void out_block(const UnpackPanel& panel, std::int64_t k, std::int64_t word, const std::array<std::uint8_t*, 8>& out) {
  const std::int64_t words = panel.total_rows / 8;
  Words x[8];
  for (std::int64_t i = 0; i < 8; ++i) {
    const auto at = [&](std::int64_t lane) { return load_word(panel.words, (k + lane * 8 + i) * words + word); };
    x[i] = Words{at(0), at(1), at(2), at(3)};
  }
  transpose_nibbles(x);
  for (std::size_t nibble = 0; nibble < 8; ++nibble)
    if (out[nibble] != nullptr) store_codes<4>(x[nibble], out[nibble] + k);
}

// The same for at most eight columns.
void out_tail(const UnpackPanel& panel, std::int64_t k, std::int64_t word, const std::array<std::uint8_t*, 8>& out) {
  const std::int64_t words = panel.total_rows / 8;
  const std::int64_t count = std::min<std::int64_t>(8, panel.cols - k);
  std::uint32_t x[8] = {};
  for (std::int64_t i = 0; i < count; ++i) x[i] = load_word(panel.words, (k + i) * words + word);
  transpose_nibbles(x);
  for (std::size_t nibble = 0; nibble < 8; ++nibble) {
    const std::uint64_t codes = spread_nibbles(x[nibble]);
    if (out[nibble] != nullptr) std::memcpy(out[nibble] + k, &codes, static_cast<std::size_t>(count));
  }
}

}  // namespace

void unpack_words_along_in_by_in(const UnpackPanel& panel) {
  panel.bits == 4 ? by_in<4>(panel) : by_in<8>(panel);
}

void unpack_words_along_in_by_out(const UnpackPanel& panel) {
  panel.bits == 4 ? by_out<4>(panel) : by_out<8>(panel);
}

void unpack_words_along_out_by_in(const UnpackPanel& panel, const std::array<std::uint8_t, 8>& row_of_nibble) {
  const std::int64_t row_end = panel.row_begin + panel.rows;
  const auto rows_of = [&](std::int64_t word) {
    std::array<std::uint8_t*, 8> out{};
    for (std::size_t nibble = 0; nibble < 8; ++nibble) {
      const std::int64_t row = word * 8 + row_of_nibble[nibble] - panel.row_begin;
      if (row >= 0 && row < panel.rows) out[nibble] = panel.out + row * panel.cols;
    }
    return out;
  };
  const std::int64_t blocks_end = panel.cols / 32 * 32;
  for (std::int64_t k = 0; k < blocks_end; k += 32)
    for (std::int64_t word = panel.row_begin / 8; word * 8 < row_end; ++word) out_block(panel, k, word, rows_of(word));
  for (std::int64_t k = blocks_end; k < panel.cols; k += 8)
    for (std::int64_t word = panel.row_begin / 8; word * 8 < row_end; ++word) out_tail(panel, k, word, rows_of(word));
}

}  // namespace moracle
