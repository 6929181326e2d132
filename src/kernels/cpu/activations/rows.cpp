#include "kernels/cpu/activations/rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/checked.h"
#include "scheme/activation_codes.h"
#include "scheme/activation_quant.h"
#include "scheme/codes.h"

namespace moracle::cpu {

namespace {

// Sums belong to the numbers that are multiplied, so they are taken after quantization and rounding.
void sum_groups(const PanelFormat& format, const float* values, float* sums) {
  for (std::int64_t g = 0; g < format.groups; ++g) {
    const std::int64_t first = g * format.group_cols;
    const std::int64_t end = std::min(first + format.group_cols, format.cols);
    float sum = 0.0F;
    for (std::int64_t k = first; k < end; ++k) sum += values[k];
    sums[g] = sum;
  }
}

// Largest magnitude; NaN and infinities are left out.
float magnitude(const ActivationKernels& ops, const float* values, std::int64_t count) {
  float most = ops.absolute_max(values, count);
  if (!std::isnan(most)) return most;
  most = 0.0F;
  for (std::int64_t i = 0; i < count; ++i) most = std::max(most, std::fabs(values[i]));
  return most;
}

// Replaces values that share a scale by the numbers its codes stand for and returns the scale: quantize_to_codes,
// whole vectors at a time. Values that are not finite go the scalar way.
float quantize_values(const ActivationKernels& ops, const QuantKey& key, std::optional<float> input_scale,
                      std::span<float> values) {
  const float most = ops.absolute_max(values.data(), narrow<std::int64_t>(values.size()));
  if (std::isnan(most) || key.element == Element::int8) return quantize_to_codes(key, input_scale, values);
  const NumberRounding rounding = number_rounding(key, most, input_scale);
  ops.round_numbers({.values = values.data(),
                     .count = narrow<std::int64_t>(values.size()),
                     .factor = rounding.factor,
                     .divide = rounding.divide,
                     .mantissa = rounding.mantissa,
                     .min_exponent = rounding.min_exponent,
                     .most = rounding.most});
  return rounding.scale;
}

// Quantizes a row and writes its scales, one per group of the weight or one.
void quantize_row(const ActivationKernels& ops, const PanelFormat& format, std::optional<float> input_scale,
                  float* values, float* scales) {
  const std::span<float> row{values, static_cast<std::size_t>(format.cols)};
  const QuantKey& key = *format.activation;
  const std::int64_t width = key.granularity.kind == Granularity::Kind::group ? key.granularity.cols : format.cols;
  for (std::int64_t first = 0; first < format.cols; first += width) {
    const auto count = static_cast<std::size_t>(std::min(width, format.cols - first));
    const float scale = quantize_values(ops, key, input_scale, row.subspan(static_cast<std::size_t>(first), count));
    if (format.scaling == ActScaling::per_token) {
      scales[0] = scale;
      continue;
    }
    const std::int64_t end = std::min(first + width, format.cols);
    for (std::int64_t g = first / format.group_cols; g * format.group_cols < end; ++g) scales[g] = scale;
  }
}

// Of integer codes, in the units of the values.
float largest_code(const PanelFormat& format) {
  const bool own = !format.activation;  // published codes have 8 bits, whatever holds them
  return own && format.input != ActDtype::i8 ? static_cast<float>(kMaxWord) : 127.0F;
}

// What a row has for groups of the weight from g on, as codes of `scale`.
void encode_groups(const ActivationKernels& ops, const PanelFormat& format, const float* row_values, std::int64_t g,
                   std::int64_t groups, float scale, const ActivationRow& row) {
  const std::int64_t first = g * format.group_cols;
  const std::int64_t count = std::min(groups * format.group_cols, format.cols - first);
  const bool split = format.input == ActDtype::split_i16;
  const std::int64_t bytes = split ? 1 : static_cast<std::int64_t>(format.input_bytes());
  const auto encode = split ? ops.encode_split : format.input == ActDtype::i16 ? ops.encode16 : ops.encode8;
  const std::int64_t blocks = format.group_blocks();
  auto* const sums = reinterpret_cast<std::int32_t*>(row.sums);
  encode({.x = row_values + first,
          .groups = groups,
          .group_columns = format.group_cols,
          .last_columns = count - (groups - 1) * format.group_cols,
          .scale = scale,
          .most = largest_code(format),
          .nibbles = format.code != WeightCode::int8,
          .sum_factor = format.zeros ? 1 : -format.offset,
          .out = row.x + g * format.steps * kStepColumns * bytes,
          .sums = format.group_sums() > 0 ? sums + g : nullptr,
          .pairs = blocks > 0 ? reinterpret_cast<std::uint32_t*>(sums) + format.group_sums() + g * blocks : nullptr,
          .pair_columns = format.block_columns,
          .pair_factor = -format.offset,
          .plane = split ? format.plane_columns() : 0});
}

constexpr float kLeastMagnitude = 1e-10F;

// A row as int8 codes under the scheme's scale.
void encode_published(const ActivationKernels& ops, const PanelFormat& format, std::optional<float> input_scale,
                      const float* values, const ActivationRow& row) {
  const float scale = format.activation->dynamic
                          ? std::max(magnitude(ops, values, format.cols), kLeastMagnitude) / largest_code(format)
                          : input_scale.value_or(1.0F);
  std::fill_n(row.scales, format.scaling == ActScaling::per_group ? format.groups : 1, scale);
  encode_groups(ops, format, values, 0, format.groups, scale, row);
}

// A row as integer codes under running scales. No scale is below 2^-16 of the row's largest, so that the factors
// between them cannot carry a sum out of f32; what codes lose by that is 2^-16 of what they lose where the largest
// value is.
void encode_own(const ActivationKernels& ops, const PanelFormat& format, const float* values,
                const ActivationRow& row) {
  float most = 0.0F;
  for (std::int64_t i = 0; i < format.running_scales(); ++i) {
    const std::int64_t first = i * format.own_group_cols;
    row.scales[i] = magnitude(ops, values + first, std::min(format.own_group_cols, format.cols - first));
    most = std::max(most, row.scales[i]);
  }
  const float least = std::max(most * 0x1p-16F, kLeastMagnitude);
  float scale = 1.0F;
  const std::int64_t share = format.scale_groups;  // groups of the weight under one scale
  for (std::int64_t i = 0; i < format.running_scales(); ++i) {
    const float next = std::max(row.scales[i], least) / largest_code(format);  // of the magnitude so far
    row.scales[i] = scale / next;
    scale = next;
    encode_groups(ops, format, values, i * share, std::min(share, format.groups - i * share), scale, row);
  }
  row.scales[format.running_scales()] = scale;
}

}  // namespace

void make_activation_row(const ActivationKernels& ops, const PanelFormat& format, const MatrixExtras& extras,
                         const float* x, float* scratch, const ActivationRow& row) {
  const std::vector<std::int32_t>& order = extras.order;
  const auto cols = static_cast<std::size_t>(format.cols);
  const auto padded = static_cast<std::size_t>(format.padded_cols());
  const std::size_t used = padded * (format.input == ActDtype::split_i16 ? 1 : format.input_bytes());
  std::memset(row.x + used, 0, format.input_stride() - used);
  float* const values = format.input == ActDtype::f32 ? reinterpret_cast<float*>(row.x) : scratch;
  for (std::size_t p = 0; p < order.size(); ++p) values[p] = x[order[p]];
  if (format.integer_input()) {
    const float* const ordered = order.empty() ? x : values;
    return format.activation ? encode_published(ops, format, extras.input_scale, ordered, row)
                             : encode_own(ops, format, ordered, row);
  }
  if (order.empty()) std::copy(x, x + cols, values);
  std::fill(values + cols, values + padded, 0.0F);
  if (format.activation) quantize_row(ops, format, extras.input_scale, values, row.scales);
  if (format.input == ActDtype::bf16) {
    auto* rounded = reinterpret_cast<std::uint16_t*>(row.x);
    ops.to_bf16(values, rounded, narrow<std::int64_t>(padded));
    if (format.zeros) {
      for (std::size_t p = 0; p < padded; ++p) values[p] = decode_bf16(rounded[p]);
    }
  }
  if (format.zeros) sum_groups(format, values, row.sums);
}

ActivationRows ActivationRows::take(const PanelFormat& format, std::size_t rows, BumpArena& arena) {
  return {.x = arena.take<std::byte>(rows * format.input_stride()),
          .sums = arena.take<float>(rows * format.sum_count()),
          .scales = arena.take<float>(rows * format.input_scale_count())};
}

ActivationRow ActivationRows::row(const PanelFormat& format, std::int64_t index) const {
  const auto at = static_cast<std::size_t>(index);
  return {.x = x.data() + at * format.input_stride(),
          .sums = format.sum_count() > 0 ? sums.data() + at * format.sum_count() : nullptr,
          .scales = format.input_scale_count() > 0 ? scales.data() + at * format.input_scale_count() : nullptr};
}

void TokenBlock::add(const PanelFormat& format, const ActivationRow& row) {
  x[count] = row.x;
  sums[count] = row.sums;
  scales[count] = row.scales;
  token_scale[count] = 1.0F;
  if (format.scaling == ActScaling::running) token_scale[count] = row.scales[format.running_scales()];
  if (format.scaling == ActScaling::per_token && format.activation) token_scale[count] = row.scales[0];
  ++count;
}

GemmArgs TokenBlock::call(const PanelFormat& format) const {
  return {.shape = format, .tokens = count, .x = x, .sums = sums, .input_scales = scales, .token_scale = token_scale};
}

}  // namespace moracle::cpu
