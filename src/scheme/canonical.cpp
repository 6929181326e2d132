#include "scheme/canonical.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/checked.h"
#include "scheme/codes.h"

namespace moracle {
namespace {

using Table = std::array<float, 256>;

template <class Decode>
Table make_table(Decode decode) {
  Table table{};
  for (std::size_t code = 0; code < table.size(); ++code) table[code] = decode(static_cast<std::uint8_t>(code));
  return table;
}

template <class Decode>
std::array<std::uint8_t, 64> recoded_to_e4m3(Decode decode) {
  std::array<std::uint8_t, 64> codes{};
  for (std::size_t code = 0; code < codes.size(); ++code)
    codes[code] = encode_e4m3(decode(static_cast<std::uint8_t>(code)));
  return codes;
}

// Values of the float codes; null for integers, whose value depends on the zero point.
const Table* float_table(Element element) {
  static const Table e4m3 = make_table(decode_e4m3);
  static const Table e5m2 = make_table(decode_e5m2);
  static const Table e2m1 = make_table(decode_e2m1);
  static const Table e2m3 = make_table(decode_e2m3);
  static const Table e3m2 = make_table(decode_e3m2);
  switch (element) {
    case Element::e4m3:
      return &e4m3;
    case Element::e5m2:
      return &e5m2;
    case Element::e2m1:
      return &e2m1;
    case Element::e2m3:
      return &e2m3;
    case Element::e3m2:
      return &e3m2;
    default:
      return nullptr;
  }
}

// The scale is multiplied with the second level first, then with the element: the order of the published NVFP4
// reference, and without effect where there is no second level.
void dequantize_row(const MatrixSpec& spec, const Table* table, const MatrixRow& row, float* out) {
  const int neutral = 1 << (bits_of(spec.key.element) - 1);
  const std::int64_t width = std::max<std::int64_t>(1, spec.group_cols);
  for (std::int64_t k = 0; k < spec.cols; ++k) {
    const std::int64_t group = spec.g_idx.empty() ? k / width : spec.g_idx[narrow<std::size_t>(k)];
    const float scale = row.scales[group] * spec.global_scale;
    const int zero = row.zeros == nullptr ? neutral : row.zeros[group];
    const float element = table != nullptr ? (*table)[row.codes[k]] : static_cast<float>(row.codes[k] - zero);
    out[k] = element * scale;
  }
}

}  // namespace

const std::uint8_t* codes_as_e4m3(Element element) {
  static const auto e2m3 = recoded_to_e4m3(decode_e2m3);
  static const auto e3m2 = recoded_to_e4m3(decode_e3m2);
  if (element == Element::e2m3) return e2m3.data();
  return element == Element::e3m2 ? e3m2.data() : nullptr;
}

std::vector<std::int32_t> columns_by_group(std::span<const std::int32_t> g_idx) {
  std::vector<std::int32_t> order(g_idx.size());
  std::iota(order.begin(), order.end(), 0);
  const auto group = [&](std::int32_t column) { return g_idx[static_cast<std::size_t>(column)]; };
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return group(a) != group(b) ? group(a) < group(b) : a < b;  // columns of a group stay in their order
  });
  return order;
}

void dequantize_row(const MatrixSpec& spec, const MatrixRow& row, std::span<float> out) {
  if (row.values != nullptr) {
    std::copy_n(row.values, spec.cols, out.begin());
    return;
  }
  dequantize_row(spec, float_table(spec.key.element), row, out.data());
}

void dequantize_row(const MatrixSpec& spec, const MatrixPanel& panel, std::int64_t row, std::span<float> out) {
  const auto element = narrow<std::size_t>(row * spec.cols);
  const auto group = narrow<std::size_t>(row * spec.groups);
  if (!spec.key.quantized()) return dequantize_row(spec, {.values = panel.values.data() + element}, out);
  dequantize_row(spec,
                 {.codes = panel.codes.data() + element,
                  .scales = panel.scales.data() + group,
                  .zeros = panel.zeros.empty() ? nullptr : panel.zeros.data() + group},
                 out);
}

void dequantize_panel(const MatrixSpec& spec, const MatrixPanel& panel, std::span<float> out) {
  for (std::int64_t r = 0; r < panel.rows; ++r) {
    dequantize_row(spec, panel, r, out.subspan(narrow<std::size_t>(r * spec.cols), narrow<std::size_t>(spec.cols)));
  }
}

bool has_own_up_order(const CanonicalExperts& experts) {
  return std::any_of(experts.experts.begin(), experts.experts.end(), [](const CanonicalExperts::Expert& expert) {
    return expert.gated() && expert.gate.weight->spec().g_idx != expert.up.weight->spec().g_idx;
  });
}

Result<> MatrixSource::read_scales(std::int64_t begin, std::int64_t end, MatrixPanel& out) const {
  MORACLE_TRY(read(begin, end, out));
  out.codes.clear();
  out.values.clear();
  return Ok{};
}

Result<std::vector<float>> dequantize(const MatrixSource& source) {
  constexpr std::int64_t kPanelRows = 64;
  const MatrixSpec& spec = source.spec();
  const auto elements = checked_mul(spec.rows, spec.cols);
  if (!elements || *elements < 0)
    return Error{.code = "shape.overflow", .where = spec.name, .found = "more elements than can be counted"};
  std::vector<float> values(narrow<std::size_t>(*elements));
  MatrixPanel panel;
  for (std::int64_t begin = 0; begin < spec.rows; begin += kPanelRows) {
    const std::int64_t end = std::min(spec.rows, begin + kPanelRows);
    MORACLE_TRY(source.read(begin, end, panel));
    dequantize_panel(spec, panel,
                     std::span(values).subspan(narrow<std::size_t>(begin * spec.cols),
                                               narrow<std::size_t>((end - begin) * spec.cols)));
  }
  return values;
}

}  // namespace moracle
