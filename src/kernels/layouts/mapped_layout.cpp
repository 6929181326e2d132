#include "kernels/layouts/mapped_layout.h"

#include <algorithm>
#include <bit>

#include "base/checked.h"

namespace moracle::layout {

Result<> accepts_host(const MappedLayout& layout, std::endian host) {
  if (!layout.little_endian_host || host == std::endian::little) return Ok{};
  return Error{.code = "layout.byte_order",
               .where = std::string(layout.name),
               .wanted = "a little-endian host",
               .found = "a big-endian one"};
}

namespace detail {

Error refused(const MappedLayout& layout, const MatrixHead& head, std::string code, std::string wanted,
              std::string found) {
  return {.code = "layout." + std::move(code),
          .where = head.name,
          .wanted = std::move(wanted) + ", which is all that " + std::string(layout.name) + " has room for",
          .found = std::move(found)};
}

Result<IndexMap> index_map_of(const MappedLayout& layout, const MatrixHead& head, Role role) {
  MORACLE_ASSIGN(const Grid part, padded_part(head, role, layout.sizes));
  const auto rows = checked_mul(part.rows, head.parts);
  if (!rows) return refused(layout, head, "shape", "rows that can be counted", std::to_string(part.rows));
  IndexMap how{.part_rows = head.part_rows(),
               .padded_part_rows = part.rows,
               .permuted_rows = *rows,
               .stored = {*rows, part.cols},
               .permutations = role == Role::w13 ? layout.w13_rows : layout.w2_rows,
               .map = layout.weight};
  return how;
}

namespace {

Result<> check(const MappedLayout& layout, const LayoutMatrix& matrix) {
  const MatrixHead& head = matrix.head;
  MORACLE_TRY(accepts_host(layout, std::endian::native));
  if (!head.key.quantized()) return refused(layout, head, "scheme", "quantized weights", to_string(head.key));
  if (!matrix.g_idx.empty()) return refused(layout, head, "act_order", "columns in group order", "a group index");
  if (!head.key.symmetric && layout.zero == nullptr)
    return refused(layout, head, "zero_points", "symmetric weights", "zero points");
  if (!matrix.bias.empty() && !layout.bias) return refused(layout, head, "bias", "no bias", "a bias");
  if (layout.scale_type == ScaleType::bf16 && head.key.scale == ScaleType::f16)
    return refused(layout, head, "scale_type", "bf16 scales", "f16 scales, which bf16 cannot hold");
  return Ok{};
}

std::int64_t rows_per_scale(const MatrixHead& head) {
  switch (head.key.granularity.kind) {
    case Granularity::Kind::tensor:
      return head.part_rows();
    case Granularity::Kind::block:
      return head.key.granularity.rows;
    default:
      return 1;
  }
}

// The canonical form repeats a scale for each of its rows. Rows that were interleaved on disk may have come from other
// blocks than their neighbours: their scales are kept a row at a time, a form that the same kernels take.
std::int64_t rows_that_share(const LayoutMatrix& matrix) {
  const MatrixHead& head = matrix.head;
  const std::int64_t sharing = rows_per_scale(head);
  for (std::int64_t r = 0; sharing > 1 && r < head.rows; ++r) {
    const std::int64_t first = r - r % head.part_rows() % sharing;
    for (std::int64_t g = 0; g < head.groups; ++g)
      if (matrix.scale(r, g) != matrix.scale(first, g)) return 1;
  }
  return sharing;
}

Result<StoredScales> scales_of(const MappedLayout& layout, const LayoutMatrix& matrix, const IndexMap& rows,
                               std::int64_t groups, std::int64_t per_scale, Role role) {
  const MatrixHead& head = matrix.head;
  const std::int64_t part = ceil_div(head.part_rows(), per_scale);
  IndexMap how = rows;
  if (per_scale > 1) {
    how.part_rows = part;
    how.padded_part_rows = part;
    how.permuted_rows = head.parts * part;
    how.permutations = {};
    if (role == Role::w13) how.permutations = layout.w13_shared_rows;
  }
  how.stored = {round_up(how.permuted_rows, layout.scale_multiple.rows), round_up(groups, layout.scale_multiple.cols)};
  how.map = layout.scale;
  const ScaleType type = layout.scale_type == ScaleType::none ? head.key.scale : layout.scale_type;
  MORACLE_ASSIGN(StoredScales scales, StoredScales::zeroed(how, type));
  for (std::int64_t at = 0; at < head.parts * part; ++at) {
    const std::int64_t r = at / part * head.part_rows() + at % part * per_scale;
    for (std::int64_t g = 0; g < head.groups; ++g) {
      const float scale = matrix.scale(r, g);
      if (scale < 0.0F && layout.least_scale > 0.0F)
        return refused(layout, head, "scale", "scales of 0 or more", std::to_string(scale));
      if (!scales.put(at, g, layout.least_scale > 0.0F ? std::max(scale, layout.least_scale) : scale))
        return refused(layout, head, "scale", "scales within their stored type", "one beyond");
    }
  }
  return scales;
}

Result<StoredCodes> zeros_of(const MappedLayout& layout, const LayoutMatrix& matrix, const IndexMap& rows,
                             std::int64_t groups) {
  const MatrixHead& head = matrix.head;
  const int bits = bits_of(head.key.element);
  IndexMap how = rows;
  how.map = bits == 8 ? row_major : layout.zero;
  how.stored = {round_up(rows.permuted_rows, 8 / bits), groups};
  MORACLE_ASSIGN(StoredCodes zeros, StoredCodes::zeroed(how, bits));
  for (std::int64_t r = 0; r < head.rows; ++r)
    for (std::int64_t g = 0; g < head.groups; ++g) zeros.put(r, g, matrix.zero(r, g));
  return zeros;
}

}  // namespace

Result<MappedArrays> store(const MappedLayout& layout, const LayoutMatrix& matrix, Role role) {
  MORACLE_TRY(check(layout, matrix));
  const MatrixHead& head = matrix.head;
  MORACLE_ASSIGN(IndexMap how, index_map_of(layout, head, role));
  MappedArrays arrays{.rows_per_scale = rows_that_share(matrix)};
  if (!layout.row_scales && arrays.rows_per_scale != rows_per_scale(head))
    return refused(layout, head, "scale", "one scale for the rows of a block", "rows that differ");
  MORACLE_ASSIGN(arrays.weight, StoredCodes::zeroed(how, bits_of(head.key.element)));
  for (std::int64_t r = 0; r < head.rows; ++r) {
    for (std::int64_t k = 0; k < head.cols; ++k)
      arrays.weight.put(r, k, narrow<std::uint8_t>(matrix.code(r, k) ^ layout.flip));
  }
  const std::int64_t groups = padded_groups(head, how.stored.cols);
  MORACLE_ASSIGN(arrays.scales, scales_of(layout, matrix, how, groups, arrays.rows_per_scale, role));
  if (!head.key.symmetric) {
    MORACLE_ASSIGN(arrays.zeros, zeros_of(layout, matrix, how, groups));
  }
  how.stored.cols = 1;
  how.map = row_major;
  MORACLE_ASSIGN(arrays.bias, store_bias(matrix, how));
  return arrays;
}

}  // namespace detail
}  // namespace moracle::layout
