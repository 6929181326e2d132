#include "kernels/layouts/index_map.h"

#include <bit>
#include <cmath>
#include <optional>

#include "base/checked.h"
#include "scheme/codes.h"

namespace moracle::layout {
namespace {

std::size_t width_of(ScaleType type) {
  switch (type) {
    case ScaleType::e4m3:
    case ScaleType::e8m0:
      return 1;
    case ScaleType::f16:
    case ScaleType::bf16:
      return 2;
    default:
      return 4;
  }
}

std::uint32_t encode(ScaleType type, float scale) {
  switch (type) {
    case ScaleType::e4m3:
      return encode_e4m3(scale);
    case ScaleType::e8m0:
      return encode_e8m0(scale);
    case ScaleType::f16:
      return encode_f16(scale);
    case ScaleType::bf16:
      return encode_bf16(scale);
    default:
      return std::bit_cast<std::uint32_t>(scale);
  }
}

std::uint32_t load(const std::uint8_t* bytes, std::size_t width) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < width; ++i) value |= static_cast<std::uint32_t>(bytes[i]) << (8 * i);
  return value;
}

void store(std::uint8_t* bytes, std::size_t width, std::uint32_t value) {
  for (std::size_t i = 0; i < width; ++i) bytes[i] = static_cast<std::uint8_t>(value >> (8 * i));
}

std::optional<std::int64_t> bytes_for(const Grid& grid, std::int64_t bits) {
  if (grid.rows < 1 || grid.cols < 1) return std::nullopt;
  const auto elements = checked_mul(grid.rows, grid.cols);
  if (!elements) return std::nullopt;
  const auto total = checked_mul(*elements, bits);
  if (!total) return std::nullopt;
  return ceil_div(*total, 8);
}

Error no_size(const Grid& grid) {
  return {.code = "layout.shape",
          .wanted = "a matrix whose size can be counted",
          .found = std::to_string(grid.rows) + " x " + std::to_string(grid.cols)};
}

}  // namespace

Result<StoredCodes> StoredCodes::zeroed(const IndexMap& how, int bits) {
  const auto bytes = bytes_for(how.stored, bits);
  if (!bytes) return no_size(how.stored);
  StoredCodes codes;
  codes.how_ = how;
  codes.bits_ = bits;
  codes.bytes_.resize(narrow<std::size_t>(*bytes));
  return codes;
}

Result<StoredScales> StoredScales::zeroed(const IndexMap& how, ScaleType type) {
  const auto bytes = bytes_for(how.stored, narrow<std::int64_t>(8 * width_of(type)));
  if (!bytes) return no_size(how.stored);
  StoredScales scales;
  scales.how_ = how;
  scales.type_ = type;
  scales.bytes_.resize(narrow<std::size_t>(*bytes));
  return scales;
}

bool StoredScales::put(std::int64_t row, std::int64_t col, float scale) {
  const std::size_t width = width_of(type_);
  const std::int64_t index = how_.index(row, col);
  store(bytes_.data() + static_cast<std::size_t>(index) * width, width, encode(type_, scale));
  return std::isfinite(decode(index));
}

std::uint16_t StoredScales::bits_at(std::int64_t row, std::int64_t col) const {
  const std::size_t width = width_of(type_);
  return narrow<std::uint16_t>(load(bytes_.data() + static_cast<std::size_t>(how_.index(row, col)) * width, width));
}

void StoredScales::put_bits(std::int64_t row, std::int64_t col, std::uint16_t bits) {
  const std::size_t width = width_of(type_);
  store(bytes_.data() + static_cast<std::size_t>(how_.index(row, col)) * width, width, bits);
}

float StoredScales::decode(std::int64_t index) const {
  const std::size_t width = width_of(type_);
  const std::uint32_t bits = load(bytes_.data() + static_cast<std::size_t>(index) * width, width);
  switch (type_) {
    case ScaleType::e4m3:
      return decode_e4m3(narrow<std::uint8_t>(bits));
    case ScaleType::e8m0:
      return decode_e8m0(narrow<std::uint8_t>(bits));
    case ScaleType::f16:
      return decode_f16(narrow<std::uint16_t>(bits));
    case ScaleType::bf16:
      return decode_bf16(narrow<std::uint16_t>(bits));
    default:
      return std::bit_cast<float>(bits);
  }
}

}  // namespace moracle::layout
