// Matrices of the golden files in the form that layouts take, decoded from their on-disk words.
#pragma once

#include <bit>
#include <string>
#include <vector>

#include "kernels/layouts/layout_matrix.h"
#include "scheme/codes.h"
#include "support/safetensors_reader.h"

namespace moracle::test {

using Bytes = std::vector<std::uint8_t>;

inline Bytes bytes_of(const GoldenFile& file, const std::string& name) {
  return file.values<std::uint8_t>(name);
}

inline Bytes bytes_of(std::span<const std::uint8_t> bytes) {
  return {bytes.begin(), bytes.end()};
}

// Element `index` of a little-endian stream of `bits` a code.
inline std::uint8_t code_at(const Bytes& bytes, std::int64_t index, int bits) {
  const auto slot = static_cast<std::size_t>(index);
  if (bits == 8) return bytes[slot];
  return static_cast<std::uint8_t>(bytes[slot / 2] >> (slot % 2 * 4) & 15U);
}

// Scales of `type` as f32, in the order of the file.
inline std::vector<float> scales_of(const Bytes& bytes, ScaleType type) {
  std::vector<float> scales;
  if (type == ScaleType::e4m3 || type == ScaleType::e8m0) {
    for (const std::uint8_t byte : bytes)
      scales.push_back(type == ScaleType::e4m3 ? decode_e4m3(byte) : decode_e8m0(byte));
    return scales;
  }
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
    const auto code = static_cast<std::uint16_t>(bytes[i] | bytes[i + 1] << 8);
    scales.push_back(type == ScaleType::f16 ? decode_f16(code) : decode_bf16(code));
  }
  return scales;
}

inline layout::MatrixHead head_of(QuantKey key, std::int64_t rows, std::int64_t cols, std::int64_t parts = 1) {
  const auto kind = key.granularity.kind;
  const bool grouped = kind == Granularity::Kind::group || kind == Granularity::Kind::block;
  const std::int64_t width = grouped ? key.granularity.cols : cols;
  return {.name = "golden",
          .key = key,
          .rows = rows,
          .cols = cols,
          .parts = parts,
          .group_cols = width,
          .groups = (cols + width - 1) / width,
          .global_scales = std::vector<float>(static_cast<std::size_t>(parts), 1.0F)};
}

// Codes and scales that lie as the matrix does: [rows][cols], low nibble first, and [rows][groups].
inline layout::LayoutMatrix row_matrix(const layout::MatrixHead& head, const Bytes& codes, const Bytes& scales) {
  layout::LayoutMatrix matrix = blank_matrix(head);
  for (std::size_t i = 0; i < matrix.panel.codes.size(); ++i)
    matrix.panel.codes[i] = code_at(codes, static_cast<std::int64_t>(i), bits_of(head.key.element));
  matrix.panel.scales = scales_of(scales, head.key.scale);
  return matrix;
}

}  // namespace moracle::test
