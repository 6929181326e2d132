#include "kernels/layouts/layout_matrix.h"

#include <algorithm>
#include <numeric>

#include "base/checked.h"
#include "scheme/codes.h"

namespace moracle::layout {
namespace {

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

Result<> check_part(const MatrixSpec& first, const MatrixSpec& part) {
  if (part.rows == first.rows && part.cols == first.cols && part.key == first.key &&
      part.group_cols == first.group_cols && part.groups == first.groups) {
    if (part.g_idx == first.g_idx) return Ok{};
    return Error{.code = "layout.group_index",
                 .where = part.name,
                 .wanted = "the group index of " + first.name + ", with which it shares one matrix",
                 .found = "another"};
  }
  return Error{.code = "layout.parts",
               .where = part.name,
               .wanted = "size and scheme of " + first.name + ", with which it shares one matrix",
               .found = std::to_string(part.rows) + " x " + std::to_string(part.cols) + " " + to_string(part.key)};
}

std::array<float, 256> make_values(float (*decode)(std::uint8_t)) {
  std::array<float, 256> values{};
  for (std::size_t code = 0; code < values.size(); ++code) values[code] = decode(static_cast<std::uint8_t>(code));
  return values;
}

Result<std::int64_t> padded(const MatrixHead& head, std::string_view what, std::int64_t size, const Multiple& multiple,
                            std::int64_t group) {
  if (!multiple.pads && size % multiple.of != 0) {
    return Error{.code = "layout.shape",
                 .where = head.name,
                 .wanted = std::string(what) + " in multiples of " + std::to_string(multiple.of),
                 .found = std::to_string(size)};
  }
  // Where nothing is padded the last group may be ragged, as in the checkpoint.
  const std::int64_t whole = multiple.pads ? group : 1;
  const auto step = checked_mul(multiple.of, whole / std::gcd(multiple.of, whole));
  const auto top = step ? checked_add(size, *step) : std::nullopt;
  if (!top || size < 1) {
    return Error{
        .code = "layout.shape", .where = head.name, .wanted = "a size to lay out", .found = std::to_string(size)};
  }
  return round_up(size, *step);
}

}  // namespace

LayoutMatrix blank_matrix(const MatrixHead& head) {
  LayoutMatrix matrix;
  matrix.head = head;
  matrix.panel.rows = head.rows;
  const auto elements = narrow<std::size_t>(head.rows * head.cols);
  if (!head.key.quantized()) {
    matrix.panel.values.resize(elements);
    return matrix;
  }
  matrix.panel.codes.resize(elements);
  matrix.panel.scales.resize(narrow<std::size_t>(head.rows * head.groups));
  if (!head.key.symmetric) matrix.panel.zeros.resize(matrix.panel.scales.size());
  return matrix;
}

bool same(const LayoutMatrix& a, const LayoutMatrix& b) {
  return a.head == b.head && a.g_idx == b.g_idx && a.bias == b.bias && a.panel.codes == b.panel.codes &&
         a.panel.scales == b.panel.scales && a.panel.zeros == b.panel.zeros && a.panel.values == b.panel.values;
}

Result<LayoutMatrix> whole_matrix(std::span<const CanonicalLinear* const> parts) {
  const MatrixSpec& first = parts.front()->weight->spec();
  const auto count = narrow<std::int64_t>(parts.size());
  LayoutMatrix matrix;
  matrix.head = {.name = first.name,
                 .key = first.key,
                 .rows = count * first.rows,
                 .cols = first.cols,
                 .parts = count,
                 .group_cols = first.group_cols,
                 .groups = first.groups};
  matrix.g_idx = first.g_idx;
  matrix.panel.rows = matrix.head.rows;
  const bool bias = std::any_of(parts.begin(), parts.end(), [](const auto* part) { return !part->bias.empty(); });
  MatrixPanel panel;
  for (const CanonicalLinear* part : parts) {
    const MatrixSpec& spec = part->weight->spec();
    MORACLE_TRY(check_part(first, spec));
    MORACLE_TRY(part->weight->read(0, spec.rows, panel));
    append(matrix.panel.codes, panel.codes);
    append(matrix.panel.scales, panel.scales);
    append(matrix.panel.zeros, panel.zeros);
    append(matrix.panel.values, panel.values);
    matrix.head.global_scales.push_back(spec.global_scale);
    append(matrix.bias, part->bias);
    if (bias && part->bias.empty()) matrix.bias.resize(matrix.bias.size() + narrow<std::size_t>(spec.rows));
  }
  return matrix;
}

Result<LayoutMatrix> w13_matrix(const CanonicalExperts::Expert& expert) {
  const std::array parts{&expert.gate, &expert.up};
  return whole_matrix(parts);
}

Result<LayoutMatrix> w2_matrix(const CanonicalExperts::Expert& expert) {
  const std::array parts{&expert.down};
  return whole_matrix(parts);
}

ColumnOrder column_order(std::span<const std::int32_t> g_idx) {
  if (g_idx.empty()) return InOrder{};
  ActOrder sorted{.order = columns_by_group(g_idx), .groups = {}};
  sorted.groups.reserve(g_idx.size());
  for (const std::int32_t column : sorted.order) sorted.groups.push_back(g_idx[narrow<std::size_t>(column)]);
  return sorted;
}

Result<Bias> store_bias(const LayoutMatrix& matrix, const IndexMap& how) {
  if (matrix.bias.empty()) return Bias{NoBias{}};
  MORACLE_ASSIGN(StoredScales stored, StoredScales::zeroed(how, ScaleType::f32));
  for (std::int64_t r = 0; r < matrix.head.rows; ++r) {
    if (!stored.put(r, 0, matrix.bias[narrow<std::size_t>(r)]))
      return Error{.code = "value.nan", .where = matrix.head.name, .wanted = "a finite bias", .found = "none"};
  }
  return Bias{std::move(stored)};
}

std::size_t bytes_of(const Bias& bias) {
  const auto* stored = std::get_if<StoredScales>(&bias);
  return stored == nullptr ? 0 : stored->bytes().size();
}

std::size_t bytes_of(const ColumnOrder& order) {
  const auto* sorted = std::get_if<ActOrder>(&order);
  return sorted == nullptr ? 0 : sizeof(std::int32_t) * (sorted->order.size() + sorted->groups.size());
}

Result<Grid> padded_part(const MatrixHead& head, Role role, const Sizes& sizes) {
  const bool w2 = role == Role::w2;
  const Multiple& rows = w2 ? sizes.hidden : sizes.intermediate;
  const Multiple& cols = w2 ? sizes.intermediate : sizes.hidden;
  const auto kind = head.key.granularity.kind;
  const bool grouped = kind == Granularity::Kind::group || kind == Granularity::Kind::block;
  // Intermediate sizes cover whole groups in w13 as well: what w13 makes is what w2 reads.
  const std::int64_t group = grouped ? head.group_cols : 1;
  const std::string_view hidden = role == Role::linear ? "inputs" : "a hidden size";
  const std::string_view inner = role == Role::linear ? "outputs" : "an intermediate size";
  Grid grid;
  MORACLE_ASSIGN(grid.rows, padded(head, w2 ? hidden : inner, head.part_rows(), rows, role == Role::w13 ? group : 1));
  MORACLE_ASSIGN(grid.cols, padded(head, w2 ? inner : hidden, head.cols, cols, group));
  return grid;
}

std::int64_t padded_groups(const MatrixHead& head, std::int64_t cols) {
  const auto kind = head.key.granularity.kind;
  const bool grouped = kind == Granularity::Kind::group || kind == Granularity::Kind::block;
  return grouped ? ceil_div(cols, head.group_cols) : 1;
}

const std::array<float, 256>& code_values(Element element) {
  static const std::array<float, 256> e4m3 = make_values(decode_e4m3);
  static const std::array<float, 256> e2m1 = make_values(decode_e2m1);
  return element == Element::e4m3 ? e4m3 : e2m1;
}

}  // namespace moracle::layout
