#include "kernels/cpu/weights/format.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/checked.h"

namespace moracle::cpu {

namespace {

std::optional<WeightCode> code_for(Element element) {
  constexpr std::pair<Element, WeightCode> kCodes[] = {
      {Element::int4, WeightCode::int4}, {Element::int8, WeightCode::int8}, {Element::e2m1, WeightCode::e2m1},
      {Element::e4m3, WeightCode::e4m3}, {Element::e2m3, WeightCode::e4m3}, {Element::e3m2, WeightCode::e4m3},
      {Element::bf16, WeightCode::bf16}, {Element::f16, WeightCode::f16},   {Element::f32, WeightCode::f32}};
  for (const auto& [kept, code] : kCodes)
    if (kept == element) return code;
  return std::nullopt;
}

PanelFormat panel_format(const CanonicalLinear& linear, WeightCode code, const GemmKernel& kernel) {
  const MatrixSpec& spec = linear.weight->spec();
  PanelFormat format;
  format.rows = spec.rows;
  format.cols = spec.cols;
  format.code = code;
  const bool has_scales = spec.key.quantized();
  format.zeros = has_scales && !spec.key.symmetric;
  format.scale = scale_code(spec.key.scale);
  format.stored_group_cols = has_scales ? spec.group_cols : spec.cols;
  format.group_cols = format.stored_group_cols;
  format.activation = linear.activation;
  format.input = kernel.key.act;
  format.offset = kernel.offset;
  format.block_columns = kernel.block_columns;
  if (format.integer_input() && !format.activation) {
    // A scale for 128 columns, which must follow a row's outliers, or for 256 in 16 bits, since sums of more products
    // by 8-bit codes could leave 32 bits. Several groups of the weight share it where they divide it.
    const std::int64_t most = format.input == ActDtype::i8 ? 128 : 256;
    const std::int64_t least = 128 % format.stored_group_cols == 0 ? 128 : 32;
    format.own_group_cols = std::clamp<std::int64_t>(format.stored_group_cols, least, most);
    format.group_cols = std::min(format.group_cols, format.own_group_cols);
    format.scaling = ActScaling::running;
    format.scale_groups = format.own_group_cols / format.group_cols;
  }
  if (format.activation && format.activation->granularity.kind == Granularity::Kind::group) {
    format.scaling = ActScaling::per_group;
    format.group_cols = std::min<std::int64_t>(format.group_cols, format.activation->granularity.cols);
  }
  format.groups = has_scales ? ceil_div(spec.cols, format.group_cols) : 1;
  format.steps = ceil_div(format.group_cols, kStepColumns);
  format.last_steps = ceil_div(spec.cols - (format.groups - 1) * format.group_cols, kStepColumns);
  format.panels = ceil_div(spec.rows, kPanelRows);
  const auto steps = static_cast<std::size_t>((format.groups - 1) * format.steps + format.last_steps);
  format.panel_bytes = steps * static_cast<std::size_t>(step_bytes(format.code));
  if (format.code == WeightCode::bf16x12) format.panel_bytes += sizeof(Bf16x12Tail);
  if (has_scales) {
    const std::size_t group_tail =
        static_cast<std::size_t>(kPanelRows * (scale_bytes(format.scale) + (format.zeros ? 1 : 0)));
    format.panel_bytes += static_cast<std::size_t>(format.groups) * group_tail;
  }
  format.recode = codes_as_e4m3(spec.key.element);
  return format;
}

ActivationMask activations_of(const CanonicalLinear& linear, Numerics numerics) {
  if (linear.activation)
    return linear.activation->element == Element::int8 ? ActivationMask::int8 : ActivationMask::floats;
  return numerics == Numerics::fast ? ActivationMask::fast : ActivationMask::exact;
}

bool matches(const KernelKey& key, WeightCode code, ActivationMask activations, std::int64_t group_cols) {
  if (key.weight != code || !includes(key.activations, activations)) return false;
  if (key.groups == Groups::up_to_16) return group_cols <= 16;
  if (key.groups == Groups::up_to_32) return group_cols <= 32;
  return key.groups == Groups::any || group_cols > 32;
}

}  // namespace

ScaleCode scale_code(ScaleType type) {
  if (type == ScaleType::f16) return ScaleCode::f16;
  if (type == ScaleType::bf16) return ScaleCode::bf16;
  if (type == ScaleType::e4m3) return ScaleCode::e4m3;
  if (type == ScaleType::e8m0) return ScaleCode::e8m0;
  return ScaleCode::f32;
}

std::size_t PanelFormat::input_stride() const {
  constexpr std::size_t kLine = 64;
  const std::int64_t columns = input == ActDtype::split_i16 ? plane_columns() : padded_cols();
  const std::size_t lines = (static_cast<std::size_t>(columns) * input_bytes() + kLine - 1) / kLine;
  return ((lines + 1) | 1U) * kLine;
}

MatrixExtras MatrixExtras::of(const CanonicalLinear& linear) {
  const MatrixSpec& spec = linear.weight->spec();
  std::vector<float> bias = linear.bias;
  bias.resize(static_cast<std::size_t>(ceil_div(std::ssize(bias), kPanelRows) * kPanelRows));
  return {columns_by_group(spec.g_idx), std::move(bias), spec.global_scale, linear.input_scale};
}

bool PackedFormat::even_rows() const {
  return std::any_of(ranges_, ranges_ + range_count_, [](const TokenRange& range) { return range.kernel->even_rows; });
}

bool activations_alike(const PanelFormat& a, const PanelFormat& b) {
  const auto parts = [](const PanelFormat& format) {
    return std::tuple(format.input, format.offset, format.block_columns, format.code == WeightCode::int8, format.zeros,
                      format.cols, format.group_cols, format.groups, format.steps, format.last_steps, format.activation,
                      format.scaling, format.own_group_cols);
  };
  return parts(a) == parts(b);
}

Result<PackedFormat> packed_format(const CanonicalLinear& linear, const Target& target, Numerics numerics,
                                   bool bf16_in_12_bits) {
  const MatrixSpec& spec = linear.weight->spec();
  const Error unknown{.code = "kernel.scheme",
                      .where = spec.name,
                      .wanted = "weights that " + std::string(target.name) + " serves",
                      .found = to_string(linear.scheme())};
  auto code = code_for(spec.key.element);
  if (bf16_in_12_bits) code = code == WeightCode::bf16 ? std::optional(WeightCode::bf16x12) : std::nullopt;
  if (!code) return unknown;
  const bool has_groups = spec.key.granularity.kind == Granularity::Kind::group;
  PackedFormat format;
  format.interleaved_ = target.interleaved;
  for (const GemmKernel& kernel : target.gemm) {
    if (!matches(kernel.key, *code, activations_of(linear, numerics), has_groups ? spec.group_cols : spec.cols))
      continue;
    format.ranges_[format.range_count_++] = {.min_tokens = kernel.min_tokens, .kernel = &kernel, .form = 0};
  }
  if (format.range_count_ == 0) return unknown;
  // From the last range on: its form is that of the panels.
  format.forms_[0] = panel_format(linear, *code, *format.ranges_[format.range_count_ - 1].kernel);
  for (std::size_t i = format.range_count_ - 1; i-- > 0;) {
    PackedFormat::TokenRange& range = format.ranges_[i];
    PanelFormat& last = format.forms_[format.form_count_ - 1];
    if (range.kernel->key.act == last.input) {
      if (last.offset == 0) last.offset = range.kernel->offset;  // kernels of signed codes read no sums made for it
      range.form = format.form_count_ - 1;
      continue;
    }
    range.form = format.form_count_;
    format.forms_[format.form_count_++] = panel_format(linear, *code, *range.kernel);
  }
  return format;
}

}  // namespace moracle::cpu
