// Layouts that move elements and change none: codes, scales, zero points and biases each have an index map of their
// own. One row of data describes a layout; packing, the inverse and the host executor are shared.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

#include "kernels/layouts/layout_matrix.h"

namespace moracle::layout {

struct MappedLayout {
  std::string_view name{};
  std::uint8_t flip = 0;  // codes are stored xor this: offset-binary to two's complement
  Sizes sizes{};
  std::span<const RowPermutation> w13_rows{};  // of elements, scales and biases alike
  std::span<const RowPermutation> w2_rows{};
  std::span<const RowPermutation> w13_shared_rows{};  // of scales that the rows of a block or of a part share
  ElementMap weight = row_major;
  ElementMap scale = row_major;
  Grid scale_multiple{1, 1};               // scale arrays are padded to these
  ScaleType scale_type = ScaleType::none;  // none: as the checkpoint stores them
  float least_scale = 0.0F;                // what a smaller scale, of 0 or more, is stored as
  bool row_scales = true;                  // rows of one block may have scales of their own
  ElementMap zero = nullptr;               // of zero points of 4 bits; null: the layout has no room for them
  bool bias = true;
  bool little_endian_host = false;  // the published packing runs on no other
};

// The pack of one matrix in a mapped layout. `Layout` makes each layout's pack a type of its own.
template <const MappedLayout& Layout>
struct MappedPack {
  MatrixHead head{};
  ColumnOrder order{};  // always InOrder: these layouts know no group index
  std::int64_t rows_per_scale = 1;
  StoredCodes weight{};
  StoredScales scales{};  // [rows of a part / rows_per_scale, rounded up, groups] a part
  std::variant<MiddleZero, StoredCodes> zeros{};
  Bias bias{};

  [[nodiscard]] std::uint8_t code(std::int64_t row, std::int64_t col) const {
    return static_cast<std::uint8_t>(weight.at(row, col) ^ Layout.flip);
  }
  [[nodiscard]] float scale(std::int64_t row, std::int64_t group) const {
    const std::int64_t part = row / head.part_rows();
    const std::int64_t scales_of_part = (head.part_rows() + rows_per_scale - 1) / rows_per_scale;
    return scales.at(part * scales_of_part + row % head.part_rows() / rows_per_scale, group);
  }
  [[nodiscard]] std::uint8_t zero(std::int64_t row, std::int64_t group) const {
    return std::get<StoredCodes>(zeros).at(row, group);
  }
  [[nodiscard]] std::size_t bytes() const;
};

namespace detail {
// The arrays of a pack, without the type of its layout.
struct MappedArrays {
  std::int64_t rows_per_scale = 1;
  StoredCodes weight{};
  StoredScales scales{};
  std::variant<MiddleZero, StoredCodes> zeros{};
  Bias bias{};
};
Error refused(const MappedLayout& layout, const MatrixHead& head, std::string code, std::string wanted,
              std::string found);
// Where the elements lie.
Result<IndexMap> index_map_of(const MappedLayout& layout, const MatrixHead& head, Role role);
Result<MappedArrays> store(const MappedLayout& layout, const LayoutMatrix& matrix, Role role);
}  // namespace detail

// Errors: "layout.byte_order".
Result<> accepts_host(const MappedLayout& layout, std::endian host);

// Errors: "layout.shape", "layout.zero_points", "layout.act_order", "layout.bias", "layout.scale_type",
// "layout.scale", "layout.byte_order" for what the layout has no form for.
template <const MappedLayout& Layout>
Result<MappedPack<Layout>> pack_mapped(const LayoutMatrix& matrix, Role role) {
  MORACLE_ASSIGN(detail::MappedArrays arrays, detail::store(Layout, matrix, role));
  return MappedPack<Layout>{.head = matrix.head,
                            .order = InOrder{},
                            .rows_per_scale = arrays.rows_per_scale,
                            .weight = std::move(arrays.weight),
                            .scales = std::move(arrays.scales),
                            .zeros = std::move(arrays.zeros),
                            .bias = std::move(arrays.bias)};
}

template <const MappedLayout& Layout>
std::size_t MappedPack<Layout>::bytes() const {
  const auto* stored = std::get_if<StoredCodes>(&zeros);
  return weight.bytes().size() + scales.bytes().size() + (stored == nullptr ? 0 : stored->bytes().size()) +
         bytes_of(bias);
}

}  // namespace moracle::layout
