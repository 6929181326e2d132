// Where the elements of a matrix lie in an external layout: index maps that compose, and arrays stored through them.
//
// A matrix is [out, in]; parts of it (gate over up) are padded one by one. Its rows go through a list of row
// permutations, each a bijection of the stored rows, and an element map puts (stored row, column) into a flat array.
// Writing and reading use the same map, so that what is written is what is read back, whatever the layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "scheme/quant_key.h"

namespace moracle::layout {

struct Grid {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  bool operator==(const Grid&) const = default;
};

// Where row `row` of `rows` rows goes. The half of two parts is rows / 2.
using RowPermutation = std::int64_t (*)(std::int64_t rows, std::int64_t row);

[[nodiscard]] constexpr std::int64_t swap_halves(std::int64_t rows, std::int64_t row) {
  return row < rows / 2 ? row + rows / 2 : row - rows / 2;
}
// Blocks of `Block` rows of the first half and of the second alternate; Block 1 is "interleaved".
template <std::int64_t Block>
[[nodiscard]] constexpr std::int64_t interleave_halves(std::int64_t rows, std::int64_t row) {
  const std::int64_t half = rows / 2;
  const std::int64_t part = row < half ? 0 : 1;
  const std::int64_t at = row - part * half;
  return at / Block * 2 * Block + part * Block + at % Block;
}
// The 32-row shuffle of TRT-LLM's epilogue tile of 128 rows: out[32 b + (r % 4) * 8 + r / 4] = in[32 b + r].
[[nodiscard]] constexpr std::int64_t shuffle_32(std::int64_t /*rows*/, std::int64_t row) {
  return row / 32 * 32 + row % 4 * 8 + row % 32 / 4;
}

// The 16-row shuffle of its epilogue tile of 64 rows: out[16 b + (r % 2) * 8 + r / 2] = in[16 b + r].
[[nodiscard]] constexpr std::int64_t shuffle_16(std::int64_t /*rows*/, std::int64_t row) {
  return row / 16 * 16 + row % 2 * 8 + row % 16 / 2;
}

// The flat position of (row, col), counted in elements.
using ElementMap = std::int64_t (*)(const Grid& grid, std::int64_t row, std::int64_t col);

[[nodiscard]] constexpr std::int64_t row_major(const Grid& grid, std::int64_t row, std::int64_t col) {
  return row * grid.cols + col;
}
// Columns cut into blocks of `Width`: [cols / Width][rows][Width].
template <std::int64_t Width>
[[nodiscard]] constexpr std::int64_t column_blocks(const Grid& grid, std::int64_t row, std::int64_t col) {
  return (col / Width * grid.rows + row) * Width + col % Width;
}
// Tiles of 16 rows x `Lane` columns, a lane's columns together: [rows / 16][cols / Lane][16][Lane].
template <std::int64_t Lane>
[[nodiscard]] constexpr std::int64_t tiles_of_16_rows(const Grid& grid, std::int64_t row, std::int64_t col) {
  return (row / 16 * (grid.cols / Lane) + col / Lane) * 16 * Lane + row % 16 * Lane + col % Lane;
}
// Block scales in 128 x 4 tiles, 512 elements each; rows a multiple of 128, columns of 4.
[[nodiscard]] constexpr std::int64_t swizzle_128x4(const Grid& grid, std::int64_t row, std::int64_t col) {
  return (row / 128 * (grid.cols / 4) + col / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 + col % 4;
}
// Block scales in 32 x 8 tiles as AITER keeps E8M0 bytes; rows a multiple of 32, columns of 8.
[[nodiscard]] constexpr std::int64_t tiles_32x8(const Grid& grid, std::int64_t row, std::int64_t col) {
  const std::int64_t tile = row / 32 * (grid.cols / 8) + col / 8;
  return (((tile * 4 + col % 4) * 16 + row % 16) * 2 + col % 8 / 4) * 2 + row % 32 / 16;
}
// Two rows share a pair of neighbours: [rows / 2][cols][2].
[[nodiscard]] constexpr std::int64_t row_pairs(const Grid& grid, std::int64_t row, std::int64_t col) {
  return (row / 2 * grid.cols + col) * 2 + row % 2;
}

struct IndexMap {
  std::int64_t part_rows = 1;         // rows of each part of the matrix
  std::int64_t padded_part_rows = 1;  // as stored
  std::int64_t permuted_rows = 1;     // rows that they permute: all padded parts
  Grid stored{};                      // at least permuted_rows rows
  std::span<const RowPermutation> permutations{};
  ElementMap map = row_major;

  [[nodiscard]] std::int64_t index(std::int64_t row, std::int64_t col) const {
    std::int64_t at = row / part_rows * padded_part_rows + row % part_rows;
    for (const RowPermutation permutation : permutations) at = permutation(permuted_rows, at);
    return map(stored, at, col);
  }
};

// Codes of 4 or 8 bits as a little-endian stream: element i occupies bits [i * bits, (i + 1) * bits). Words of 32 bits
// that hold their first element in their lowest bits are the same bytes. What no element of the matrix maps to is 0.
class StoredCodes {
 public:
  StoredCodes() = default;
  // Errors: "layout.shape" where the size cannot be computed.
  static Result<StoredCodes> zeroed(const IndexMap& how, int bits);
  [[nodiscard]] std::uint8_t at(std::int64_t row, std::int64_t col) const {
    const auto slot = static_cast<std::size_t>(how_.index(row, col));
    if (bits_ == 8) return bytes_[slot];
    return static_cast<std::uint8_t>(bytes_[slot / 2] >> (slot % 2 * 4) & 15U);
  }
  // Once an element.
  void put(std::int64_t row, std::int64_t col, std::uint8_t code) {
    const auto slot = static_cast<std::size_t>(how_.index(row, col));
    if (bits_ == 8) {
      bytes_[slot] = code;
    } else {
      bytes_[slot / 2] = static_cast<std::uint8_t>(bytes_[slot / 2] | (code & 15U) << (slot % 2 * 4));
    }
  }
  [[nodiscard]] std::span<const std::uint8_t> bytes() const { return bytes_; }
  [[nodiscard]] const Grid& grid() const { return how_.stored; }
  [[nodiscard]] int bits() const { return bits_; }

 private:
  IndexMap how_{};
  int bits_ = 8;
  std::vector<std::uint8_t> bytes_;
};

// Scales as the bytes of their type, little-endian: f32, f16, bf16, E4M3 or E8M0.
class StoredScales {
 public:
  StoredScales() = default;
  static Result<StoredScales> zeroed(const IndexMap& how, ScaleType type);
  [[nodiscard]] float at(std::int64_t row, std::int64_t col) const { return decode(how_.index(row, col)); }
  // Rounded to the type. False where the type has no finite number near it.
  [[nodiscard]] bool put(std::int64_t row, std::int64_t col, float scale);
  // The bit pattern itself, of at most 16 bits.
  [[nodiscard]] std::uint16_t bits_at(std::int64_t row, std::int64_t col) const;
  void put_bits(std::int64_t row, std::int64_t col, std::uint16_t bits);
  [[nodiscard]] std::span<const std::uint8_t> bytes() const { return bytes_; }
  [[nodiscard]] const Grid& grid() const { return how_.stored; }
  [[nodiscard]] ScaleType type() const { return type_; }

 private:
  [[nodiscard]] float decode(std::int64_t index) const;

  IndexMap how_{};
  ScaleType type_ = ScaleType::f32;
  std::vector<std::uint8_t> bytes_;
};

}  // namespace moracle::layout
