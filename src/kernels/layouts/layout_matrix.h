// A whole matrix as a layout takes it from the canonical form and gives it back.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "kernels/layouts/index_map.h"
#include "scheme/canonical.h"

namespace moracle::layout {

// What is constant over a matrix of one or more parts: w13 is gate over up, two parts of equally many rows.
struct MatrixHead {
  std::string name{};
  QuantKey key{};
  std::int64_t rows = 0;  // of all parts
  std::int64_t cols = 0;
  std::int64_t parts = 1;
  std::int64_t group_cols = 0;  // 0 unquantized
  std::int64_t groups = 0;
  std::vector<float> global_scales{};  // [parts]
  bool operator==(const MatrixHead&) const = default;

  [[nodiscard]] std::int64_t part_rows() const { return rows / parts; }
};

struct LayoutMatrix {
  MatrixHead head{};
  MatrixPanel panel{};                // of all rows
  std::vector<std::int32_t> g_idx{};  // [cols], or empty
  std::vector<float> bias{};          // [rows], or empty

  [[nodiscard]] std::uint8_t code(std::int64_t row, std::int64_t col) const {
    return panel.codes[static_cast<std::size_t>(row * head.cols + col)];
  }
  [[nodiscard]] float scale(std::int64_t row, std::int64_t group) const {
    return panel.scales[static_cast<std::size_t>(row * head.groups + group)];
  }
  [[nodiscard]] std::uint8_t zero(std::int64_t row, std::int64_t group) const {
    return panel.zeros[static_cast<std::size_t>(row * head.groups + group)];
  }
};
// Zeroed codes, scales and, of asymmetric keys, zero points of the head's sizes; zeroed values where unquantized.
[[nodiscard]] LayoutMatrix blank_matrix(const MatrixHead& head);
[[nodiscard]] bool same(const LayoutMatrix& a, const LayoutMatrix& b);

// Reads the parts, which must agree in size and key and, where columns are grouped by an index, in that index: a layout
// has one for all rows of a matrix. Errors: "layout.parts", "layout.group_index", and those of reading.
Result<LayoutMatrix> whole_matrix(std::span<const CanonicalLinear* const> parts);
Result<LayoutMatrix> w13_matrix(const CanonicalExperts::Expert& expert);
Result<LayoutMatrix> w2_matrix(const CanonicalExperts::Expert& expert);

// Which matrix it is decides which sizes are hidden and which intermediate.
// Outputs of a linear are the intermediate ones, its inputs the hidden ones.
enum class Role : std::uint8_t { w13, w2, linear };

// The stored columns of a matrix with a group index are sorted by group: stored position p holds column order[p], and
// belongs to group groups[p]. A kernel permutes its activations by `order`.
struct InOrder {};
struct ActOrder {
  std::vector<std::int32_t> order;   // stable argsort of g_idx
  std::vector<std::int32_t> groups;  // g_idx[order]
};
using ColumnOrder = std::variant<InOrder, ActOrder>;
[[nodiscard]] ColumnOrder column_order(std::span<const std::int32_t> g_idx);
// The column at a stored position, and the group a stored position belongs to.
[[nodiscard]] inline std::int64_t column_at(const ColumnOrder& order, std::int64_t position) {
  const auto* sorted = std::get_if<ActOrder>(&order);
  return sorted == nullptr ? position : sorted->order[static_cast<std::size_t>(position)];
}
[[nodiscard]] inline std::int64_t group_at(const MatrixHead& head, const ColumnOrder& order, std::int64_t position) {
  const auto* sorted = std::get_if<ActOrder>(&order);
  return sorted == nullptr ? position / head.group_cols : sorted->groups[static_cast<std::size_t>(position)];
}

struct NoBias {};
using Bias = std::variant<NoBias, StoredScales>;  // f32, [rows, 1]
Result<Bias> store_bias(const LayoutMatrix& matrix, const IndexMap& how);
[[nodiscard]] inline float bias_at(const Bias& bias, std::int64_t row) {
  const auto* stored = std::get_if<StoredScales>(&bias);
  return stored == nullptr ? 0.0F : stored->at(row, 0);
}
[[nodiscard]] std::size_t bytes_of(const Bias& bias);
[[nodiscard]] std::size_t bytes_of(const ColumnOrder& order);

// The zero point of a symmetric code is the middle of its range.
struct MiddleZero {};

// Sizes that a layout has tiles for. A size that is not a multiple is padded with zeros, or refused.
struct Multiple {
  std::int64_t of = 1;
  bool pads = false;
};
struct Sizes {
  Multiple hidden{};
  Multiple intermediate{};
};
// The padded [rows of a part, columns]; columns cover whole groups. Errors: "layout.shape".
Result<Grid> padded_part(const MatrixHead& head, Role role, const Sizes& sizes);
// Groups of that many columns.
[[nodiscard]] std::int64_t padded_groups(const MatrixHead& head, std::int64_t cols);

// Values of all 256 codes of a float element; integers depend on the zero point.
[[nodiscard]] const std::array<float, 256>& code_values(Element element);
[[nodiscard]] constexpr bool is_integer(Element element) {
  return element == Element::int4 || element == Element::int8;
}

// Every pack has: head, order, code(row, position), scale(row, group), zero(row, group), bias. This reads it back.
template <class Pack>
LayoutMatrix unpack(const Pack& pack) {
  const MatrixHead& head = pack.head;
  LayoutMatrix matrix = blank_matrix(head);
  for (std::int64_t r = 0; r < head.rows; ++r) {
    for (std::int64_t p = 0; p < head.cols; ++p)
      matrix.panel.codes[static_cast<std::size_t>(r * head.cols + column_at(pack.order, p))] = pack.code(r, p);
    for (std::int64_t g = 0; g < head.groups; ++g) {
      const auto at = static_cast<std::size_t>(r * head.groups + g);
      matrix.panel.scales[at] = pack.scale(r, g);
      if (!head.key.symmetric) matrix.panel.zeros[at] = pack.zero(r, g);
    }
  }
  if (const auto* sorted = std::get_if<ActOrder>(&pack.order)) {
    matrix.g_idx.resize(static_cast<std::size_t>(head.cols));
    for (std::size_t p = 0; p < sorted->order.size(); ++p)
      matrix.g_idx[static_cast<std::size_t>(sorted->order[p])] = sorted->groups[p];
  }
  if (std::holds_alternative<StoredScales>(pack.bias)) {
    for (std::int64_t r = 0; r < head.rows; ++r) matrix.bias.push_back(bias_at(pack.bias, r));
  }
  return matrix;
}

// Row `row` of the matrix as numbers, out[cols], read from the stored bytes alone.
template <class Pack>
void decode_row(const Pack& pack, std::int64_t row, float* out) {
  const MatrixHead& head = pack.head;
  const bool integer = is_integer(head.key.element);
  const float global = head.global_scales[static_cast<std::size_t>(row / head.part_rows())];
  const int middle = 1 << (bits_of(head.key.element) - 1);
  const std::array<float, 256>& values = code_values(head.key.element);
  std::int64_t group = -1;
  float scale = 0.0F;
  int zero = 0;
  for (std::int64_t p = 0; p < head.cols; ++p) {
    if (const std::int64_t g = group_at(head, pack.order, p); g != group) {
      group = g;
      scale = pack.scale(row, g) * global;
      zero = head.key.symmetric ? middle : pack.zero(row, g);
    }
    const std::uint8_t code = pack.code(row, p);
    out[column_at(pack.order, p)] = (integer ? static_cast<float>(code - zero) : values[code]) * scale;
  }
}

}  // namespace moracle::layout
