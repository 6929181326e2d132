#include "kernels/layouts/value_pack.h"

namespace moracle::layout::detail {
namespace {

ScaleType type_of(Element element) {
  switch (element) {
    case Element::bf16:
      return ScaleType::bf16;
    case Element::f16:
      return ScaleType::f16;
    default:
      return ScaleType::f32;
  }
}

}  // namespace

Result<ValueArrays> store_values(const MappedLayout& layout, const LayoutMatrix& matrix, Role role) {
  const MatrixHead& head = matrix.head;
  MORACLE_TRY(accepts_host(layout, std::endian::native));
  if (head.key.quantized()) return refused(layout, head, "scheme", "unquantized weights", to_string(head.key));
  if (!matrix.bias.empty() && !layout.bias) return refused(layout, head, "bias", "no bias", "a bias");
  MORACLE_ASSIGN(IndexMap how, index_map_of(layout, head, role));
  ValueArrays arrays;
  MORACLE_ASSIGN(arrays.values, StoredScales::zeroed(how, type_of(head.key.element)));
  for (std::int64_t r = 0; r < head.rows; ++r) {
    for (std::int64_t k = 0; k < head.cols; ++k) {
      if (!arrays.values.put(r, k, matrix.panel.values[static_cast<std::size_t>(r * head.cols + k)]))
        return refused(layout, head, "value", "finite weights", "one that is not");
    }
  }
  how.stored.cols = 1;
  how.map = row_major;
  MORACLE_ASSIGN(arrays.bias, store_bias(matrix, how));
  return arrays;
}

}  // namespace moracle::layout::detail
