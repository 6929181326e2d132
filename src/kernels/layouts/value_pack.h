// Layouts of unquantized weights: numbers of 16 or 32 bits that only move. They are rows of the same data as layouts of
// codes; what those say of scales and zero points has no meaning here.
#pragma once

#include "kernels/layouts/mapped_layout.h"

namespace moracle::layout {

// The pack of one unquantized matrix. `Layout` makes each layout's pack a type of its own.
template <const MappedLayout& Layout>
struct ValuePack {
  MatrixHead head{};
  StoredScales values{};  // [rows, cols] in the element's own type
  Bias bias{};

  [[nodiscard]] std::size_t bytes() const { return values.bytes().size() + bytes_of(bias); }
};

namespace detail {
struct ValueArrays {
  StoredScales values{};
  Bias bias{};
};
Result<ValueArrays> store_values(const MappedLayout& layout, const LayoutMatrix& matrix, Role role);
}  // namespace detail

// Errors: "layout.shape", "layout.scheme", "layout.bias" for what the layout has no form for.
template <const MappedLayout& Layout>
Result<ValuePack<Layout>> pack_values(const LayoutMatrix& matrix, Role role) {
  MORACLE_ASSIGN(detail::ValueArrays arrays, detail::store_values(Layout, matrix, role));
  return ValuePack<Layout>{.head = matrix.head, .values = std::move(arrays.values), .bias = std::move(arrays.bias)};
}

template <const MappedLayout& Layout>
void decode_row(const ValuePack<Layout>& pack, std::int64_t row, float* out) {
  for (std::int64_t k = 0; k < pack.head.cols; ++k) out[k] = pack.values.at(row, k);
}

template <const MappedLayout& Layout>
LayoutMatrix unpack(const ValuePack<Layout>& pack) {
  const MatrixHead& head = pack.head;
  LayoutMatrix matrix = blank_matrix(head);
  for (std::int64_t r = 0; r < head.rows; ++r) {
    decode_row(pack, r, matrix.panel.values.data() + r * head.cols);
    if (std::holds_alternative<StoredScales>(pack.bias)) matrix.bias.push_back(bias_at(pack.bias, r));
  }
  return matrix;
}

}  // namespace moracle::layout
