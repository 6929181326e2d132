#include "kernels/cpu/packed_matrix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <tuple>

#include "base/checked.h"
#include "scheme/activation_codes.h"
#include "scheme/activation_quant.h"
#include "scheme/codes.h"

namespace moracle::cpu {

PanelScale stored_scale(ScaleType type) {
  if (type == ScaleType::f16) return PanelScale::f16;
  if (type == ScaleType::bf16) return PanelScale::bf16;
  if (type == ScaleType::e4m3) return PanelScale::e4m3;
  if (type == ScaleType::e8m0) return PanelScale::e8m0;
  return PanelScale::f32;
}

namespace {

const CodeKernels& kernels_of(const PanelOps& ops, PanelCode code, InputForm input) {
  const auto by_input = [&](auto i8, auto i16, auto numbers) -> const CodeKernels& {
    if (input == InputForm::i8) return ops.*i8;
    return input == InputForm::i16 ? ops.*i16 : ops.*numbers;
  };
  const bool planes = input == InputForm::i16_planes;
  switch (code) {
    case PanelCode::q4:
      if (planes) return ops.q4_planes;
      return by_input(&PanelOps::q4_i8, &PanelOps::q4_i16, &PanelOps::q4);
    case PanelCode::q8:
      if (planes) return ops.q8_planes;
      return by_input(&PanelOps::q8_i8, &PanelOps::q8_i16, &PanelOps::q8);
    case PanelCode::e2m1:
      if (planes) return ops.e2m1_planes;
      return by_input(&PanelOps::e2m1_i8, &PanelOps::e2m1_i16, &PanelOps::e2m1);
    case PanelCode::e4m3:
      return ops.e4m3;
    case PanelCode::bf16:
      return ops.bf16;
    case PanelCode::bf16_compact:
      return ops.bf16_compact;
    case PanelCode::f16:
      return ops.f16;
    case PanelCode::f32:
      break;
  }
  return ops.f32;
}

bool serves(const PanelOps& ops, PanelCode code, InputForm input, InputScaling scaling) {
  return kernels_of(ops, code, input).tiles[static_cast<std::size_t>(scaling)][0].one[0] != nullptr;
}

// Where an instruction set has no kernels for bytes, 16 bits hold their codes as well.
InputForm choose_input(const PanelOps& ops, const PanelFormat& format) {
  if (format.code == PanelCode::bf16 || format.code == PanelCode::bf16_compact) return ops.bf16_input;
  if (!quantized(format.code)) return InputForm::f32;
  if (format.code == PanelCode::e4m3) return ops.coded_input;
  const bool own = !format.activation;
  const InputForm wanted = format.code == PanelCode::e2m1 ? ops.e2m1_input : ops.quantized_input;
  if (own && wanted != InputForm::i8) return wanted;
  if (!own && format.activation->element != Element::int8) return ops.coded_input;
  for (const InputForm input : {InputForm::i8, InputForm::i16}) {
    if (serves(ops, format.code, input, own ? InputScaling::running : InputScaling::of_token)) return input;
  }
  return ops.coded_input;
}

void choose_kernels(const PanelOps& ops, PanelFormat& format) {
  format.kernels = &kernels_of(ops, format.code, format.input);
  format.tiles = &format.kernels->tiles[static_cast<std::size_t>(format.input_scaling())][format.zeros ? 1 : 0];
  format.wide_panels = ops.wide_panels;
  format.interleaved = ops.interleaved;
}

std::optional<PanelCode> code_for(Element element) {
  switch (element) {
    case Element::int4:
      return PanelCode::q4;
    case Element::int8:
      return PanelCode::q8;
    case Element::e2m1:
      return PanelCode::e2m1;
    case Element::e4m3:
    case Element::e2m3:
    case Element::e3m2:
      return PanelCode::e4m3;
    case Element::bf16:
      return PanelCode::bf16;
    case Element::f16:
      return PanelCode::f16;
    case Element::f32:
      return PanelCode::f32;
    default:
      return std::nullopt;
  }
}

// Six bits in eight: every E2M3 and E3M2 number is one of E4M3, so that the same micro-kernels serve them.
template <class Decode>
std::array<std::uint8_t, 64> make_recoding(Decode decode) {
  std::array<std::uint8_t, 64> codes{};
  for (std::size_t code = 0; code < codes.size(); ++code)
    codes[code] = encode_e4m3(decode(static_cast<std::uint8_t>(code)));
  return codes;
}

const std::uint8_t* recoding(Element element) {
  static const auto e2m3 = make_recoding(decode_e2m3);
  static const auto e3m2 = make_recoding(decode_e3m2);
  if (element == Element::e2m3) return e2m3.data();
  return element == Element::e3m2 ? e3m2.data() : nullptr;
}

}  // namespace

std::size_t scale_bytes(PanelScale scale) {
  if (scale == PanelScale::f32) return 4;
  const bool narrow = scale == PanelScale::e4m3 || scale == PanelScale::e8m0;
  return narrow ? 1 : 2;
}

std::size_t step_bytes(PanelCode code) {
  switch (code) {
    case PanelCode::q4:
    case PanelCode::e2m1:
      return 128;
    case PanelCode::q8:
    case PanelCode::e4m3:
      return 256;
    case PanelCode::bf16_compact:
      return 384;
    case PanelCode::bf16:
    case PanelCode::f16:
      return 512;
    case PanelCode::f32:
      return 1024;
  }
  return 0;
}

bool quantized(PanelCode code) {
  return step_bytes(code) <= 256;
}

std::size_t PanelFormat::input_stride() const {
  constexpr std::size_t kLine = 64;
  const std::int64_t columns = input == InputForm::i16_planes ? input_plane() : padded_cols();
  const std::size_t lines = (static_cast<std::size_t>(columns) * input_bytes() + kLine - 1) / kLine;
  return ((lines + 1) | 1U) * kLine;
}

namespace {

Result<PanelFormat> panel_format(const CanonicalLinear& linear, const PanelOps& ops) {
  const MatrixSpec& spec = linear.weight->spec();
  const auto code = code_for(spec.key.element);
  if (!code) {
    return Error{.code = "kernel.scheme",
                 .where = spec.name,
                 .wanted = "int4, int8, e2m1, e2m3, e3m2, e4m3 or unquantized weights",
                 .found = to_string(linear.scheme())};
  }
  PanelFormat format;
  format.rows = spec.rows;
  format.cols = spec.cols;
  format.code = *code;
  const bool has_scales = spec.key.quantized();
  format.zeros = has_scales && !spec.key.symmetric;
  format.scale = stored_scale(spec.key.scale);
  format.stored_group_cols = has_scales ? spec.group_cols : spec.cols;
  format.group_cols = format.stored_group_cols;
  format.activation = linear.activation;
  format.input = choose_input(ops, format);
  if (format.integer_input() && !format.activation) {
    // A scale for 128 columns, which must follow a row's outliers, or for 256 in 16 bits, since sums of more products
    // by 8-bit codes could leave 32 bits. Several groups of the weight share it where they divide it.
    const std::int64_t most = format.input == InputForm::i8 ? 128 : 256;
    const std::int64_t least = 128 % format.stored_group_cols == 0 ? 128 : 32;
    format.own_group_cols = std::clamp<std::int64_t>(format.stored_group_cols, least, most);
    format.group_cols = std::min(format.group_cols, format.own_group_cols);
  }
  if (format.activation && format.activation->granularity.kind == Granularity::Kind::group) {
    format.group_input_scales = true;
    format.group_cols = std::min<std::int64_t>(format.group_cols, format.activation->granularity.cols);
  }
  format.groups = has_scales ? ceil_div(spec.cols, format.group_cols) : 1;
  format.steps = ceil_div(format.group_cols, kStepColumns);
  format.last_steps = ceil_div(spec.cols - (format.groups - 1) * format.group_cols, kStepColumns);
  format.panels = ceil_div(spec.rows, kPanelRows);
  const auto steps = static_cast<std::size_t>((format.groups - 1) * format.steps + format.last_steps);
  format.panel_bytes = steps * step_bytes(format.code);
  if (has_scales) {
    const std::size_t group_tail =
        static_cast<std::size_t>(kPanelRows) * (scale_bytes(format.scale) + (format.zeros ? 1U : 0U));
    format.panel_bytes += static_cast<std::size_t>(format.groups) * group_tail;
  }
  choose_kernels(ops, format);
  format.recode = recoding(spec.key.element);
  return format;
}

}  // namespace

Result<PanelForms> panel_forms(const CanonicalLinear& linear, const PanelOps& ops) {
  PanelForms forms;
  MORACLE_ASSIGN(forms.many, panel_format(linear, ops));
  if (ops.few == nullptr) return forms;
  MORACLE_ASSIGN(forms.few, panel_format(linear, *ops.few));
  const bool same_panels = forms.few.groups == forms.many.groups && forms.few.panel_bytes == forms.many.panel_bytes;
  if (!forms.few.integer_input() || forms.few.input == forms.many.input || !same_panels) return forms;
  forms.few_below = ops.few_below;
  forms.few.interleaved = ops.interleaved;
  return forms;
}

std::optional<PanelFormat> compacted(const PanelFormat& format, const PanelOps& ops) {
  if (format.code != PanelCode::bf16 || ops.bf16_compact.tiles[0][0].one[0] == nullptr) return std::nullopt;
  PanelFormat compact = format;
  compact.code = PanelCode::bf16_compact;
  compact.panel_bytes = static_cast<std::size_t>(format.last_steps) * step_bytes(compact.code) + sizeof(CompactTail);
  choose_kernels(ops, compact);
  return compact;
}

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

// Largest magnitude of a stretch, values that are no numbers left out.
float largest(const PanelOps& ops, std::span<const float> values, bool& finite) {
  float most = ops.absolute_max(values.data(), narrow<std::int64_t>(values.size()));
  finite = !std::isnan(most);
  if (finite) return most;
  most = 0.0F;
  for (const float value : values) most = std::max(most, std::fabs(value));
  return most;
}

struct NumberFormat {
  int mantissa;
  int min_exponent;
  float most;
};
constexpr NumberFormat number_format(Element element) {
  switch (element) {
    case Element::e2m1:
      return {.mantissa = 1, .min_exponent = 0, .most = 6.0F};
    case Element::e2m3:
      return {.mantissa = 3, .min_exponent = 0, .most = 7.5F};
    case Element::e3m2:
      return {.mantissa = 2, .min_exponent = -2, .most = 28.0F};
    default:
      return {.mantissa = 3, .min_exponent = -6, .most = 448.0F};
  }
}

// Replaces a stretch that shares a scale by the numbers its codes stand for and returns the scale: quantize_to_codes,
// whole vectors at a time. Values that are not finite go the scalar way.
float quantize_stretch(const PanelOps& ops, const QuantKey& key, std::optional<float> input_scale,
                       std::span<float> values) {
  bool finite = true;
  const float most = largest(ops, values, finite);
  if (!finite || key.element == Element::int8) return quantize_to_codes(key, input_scale, values);
  const NumberFormat format = number_format(key.element);
  RoundArgs args{.values = values.data(),
                 .count = narrow<std::int64_t>(values.size()),
                 .factor = 1.0F,
                 .divide = false,
                 .mantissa = format.mantissa,
                 .min_exponent = format.min_exponent,
                 .most = format.most};
  float scale = 1.0F;
  if (key.scale == ScaleType::e8m0) {
    scale = decode_e8m0(mx_block_scale(key.element, most));
    args.factor = 1.0F / scale;  // a power of two
  } else if (key.element == Element::e2m1) {
    const Nvfp4Block block = nvfp4_block(most, input_scale.value_or(1.0F));
    scale = decode_e4m3(block.scale) / input_scale.value_or(1.0F);
    args.factor = block.inverse;
  } else {
    scale = key.dynamic ? std::max(most / 448.0F, 1.0F / (448.0F * 512.0F)) : input_scale.value_or(1.0F);
    args.factor = scale;
    args.divide = true;
  }
  ops.round_numbers(args);
  return scale;
}

// Quantizes a row and writes its scales, one per group of the weight or one.
void quantize_row(const PanelOps& ops, const PanelFormat& format, std::optional<float> input_scale, float* values,
                  float* scales) {
  const std::span<float> row{values, static_cast<std::size_t>(format.cols)};
  const QuantKey& key = *format.activation;
  const std::int64_t width = key.granularity.kind == Granularity::Kind::group ? key.granularity.cols : format.cols;
  for (std::int64_t first = 0; first < format.cols; first += width) {
    const auto count = static_cast<std::size_t>(std::min(width, format.cols - first));
    const float scale = quantize_stretch(ops, key, input_scale, row.subspan(static_cast<std::size_t>(first), count));
    if (!format.group_input_scales) {
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
  return own && format.input != InputForm::i8 ? static_cast<float>(kMostWord) : 127.0F;
}

float magnitude(const PanelOps& ops, const float* values, std::int64_t count) {
  bool finite = true;
  return largest(ops, {values, static_cast<std::size_t>(count)}, finite);
}

// `values`, which meet groups of the weight from g on, as codes of `scale`. The last group has so many columns.
void encode_values(const PanelOps& ops, const PanelFormat& format, const float* values, std::int64_t g,
                   std::int64_t groups, std::int64_t last_columns, float scale, const PreparedRow& row) {
  const bool planes = format.input == InputForm::i16_planes;
  const std::int64_t bytes = planes ? 1 : static_cast<std::int64_t>(format.input_bytes());
  const auto encode = planes ? ops.encode_planes : format.input == InputForm::i16 ? ops.encode16 : ops.encode8;
  const std::int64_t blocks = format.group_blocks();
  auto* const sums = reinterpret_cast<std::int32_t*>(row.sums);
  encode({.x = values,
          .groups = groups,
          .group_columns = format.group_cols,
          .last_columns = last_columns,
          .scale = scale,
          .most = largest_code(format),
          .nibbles = format.code != PanelCode::q8,
          .sum_factor = format.zeros ? 1 : -format.kernels->offset,
          .out = row.x + g * format.steps * kStepColumns * bytes,
          .sums = format.group_sums() > 0 ? sums + g : nullptr,
          .pairs = blocks > 0 ? reinterpret_cast<std::uint32_t*>(sums) + format.group_sums() + g * blocks : nullptr,
          .pair_columns = format.kernels->block_columns,
          .pair_factor = -format.kernels->offset,
          .plane = planes ? format.input_plane() : 0});
}

// What a row has for groups of the weight from g on.
void encode_groups(const PanelOps& ops, const PanelFormat& format, const float* row_values, std::int64_t g,
                   std::int64_t groups, float scale, const PreparedRow& row) {
  const std::int64_t first = g * format.group_cols;
  const std::int64_t count = std::min(groups * format.group_cols, format.cols - first);
  const std::int64_t last_columns = count - (groups - 1) * format.group_cols;
  encode_values(ops, format, row_values + first, g, groups, last_columns, scale, row);
}

constexpr float kLeastMagnitude = 1e-10F;

// A row as int8 codes under the scheme's scale.
void encode_published(const PanelOps& ops, const PanelFormat& format, std::optional<float> input_scale,
                      const float* values, const PreparedRow& row) {
  const float scale = format.activation->dynamic
                          ? std::max(magnitude(ops, values, format.cols), kLeastMagnitude) / largest_code(format)
                          : input_scale.value_or(1.0F);
  std::fill_n(row.scales, format.group_input_scales ? format.groups : 1, scale);
  encode_groups(ops, format, values, 0, format.groups, scale, row);
}

// A row as integer codes under running scales. No scale is below 2^-16 of the row's largest, so that the factors
// between them cannot carry a sum out of f32; what codes lose by that is 2^-16 of what they lose where the largest
// value is.
void encode_own(const PanelOps& ops, const PanelFormat& format, const float* values, const PreparedRow& row) {
  float most = 0.0F;
  for (std::int64_t i = 0; i < format.running_scales(); ++i) {
    const std::int64_t first = i * format.own_group_cols;
    row.scales[i] = magnitude(ops, values + first, std::min(format.own_group_cols, format.cols - first));
    most = std::max(most, row.scales[i]);
  }
  const float least = std::max(most * 0x1p-16F, kLeastMagnitude);
  float scale = 1.0F;
  const std::int64_t share = format.own_group_cols / format.group_cols;  // groups of the weight under one scale
  for (std::int64_t i = 0; i < format.running_scales(); ++i) {
    const float next = std::max(row.scales[i], least) / largest_code(format);  // of the magnitude so far
    row.scales[i] = scale / next;
    scale = next;
    encode_groups(ops, format, values, i * share, std::min(share, format.groups - i * share), scale, row);
  }
  row.scales[format.running_scales()] = scale;
}

}  // namespace

bool prepared_alike(const PanelFormat& a, const PanelFormat& b) {
  const auto parts = [](const PanelFormat& format) {
    return std::tuple(format.kernels, format.scale, format.zeros, format.input, format.cols, format.group_cols,
                      format.groups, format.steps, format.last_steps, format.activation, format.group_input_scales,
                      format.own_group_cols);
  };
  return parts(a) == parts(b);
}

void prepare_row(const PanelOps& ops, const PanelFormat& format, std::span<const std::int32_t> order,
                 std::optional<float> input_scale, const float* x, float* scratch, const PreparedRow& row) {
  const auto cols = static_cast<std::size_t>(format.cols);
  const auto padded = static_cast<std::size_t>(format.padded_cols());
  const std::size_t used = padded * (format.input == InputForm::i16_planes ? 1 : format.input_bytes());
  std::memset(row.x + used, 0, format.input_stride() - used);
  float* values = format.input == InputForm::f32 ? reinterpret_cast<float*>(row.x) : scratch;
  if (!order.empty()) {
    for (std::size_t p = 0; p < cols; ++p) values[p] = x[order[p]];
  }
  if (format.integer_input()) {
    const float* const ordered = order.empty() ? x : values;
    if (format.activation) {
      encode_published(ops, format, input_scale, ordered, row);
    } else {
      encode_own(ops, format, ordered, row);
    }
    return;
  }
  if (format.input == InputForm::bf16 && order.empty() && !format.activation && !format.zeros) {
    auto* const rounded = reinterpret_cast<std::uint16_t*>(row.x);
    ops.to_bf16(x, rounded, format.cols);
    std::fill(rounded + cols, rounded + padded, std::uint16_t{0});
    return;
  }
  if (order.empty()) std::copy(x, x + cols, values);
  std::fill(values + cols, values + padded, 0.0F);
  if (format.activation) quantize_row(ops, format, input_scale, values, row.scales);
  if (format.input == InputForm::bf16) {
    auto* rounded = reinterpret_cast<std::uint16_t*>(row.x);
    ops.to_bf16(values, rounded, narrow<std::int64_t>(padded));
    if (format.zeros) {
      for (std::size_t p = 0; p < padded; ++p) values[p] = decode_bf16(rounded[p]);
    }
  }
  if (format.zeros) sum_groups(format, values, row.sums);
}

std::size_t PreparedRows::bytes(const PanelFormat& format, std::size_t rows) {
  return BumpArena::cost<std::byte>(rows * format.input_stride()) + BumpArena::cost<float>(rows * format.sum_count()) +
         BumpArena::cost<float>(rows * format.input_scale_count());
}

PreparedRows PreparedRows::take(const PanelFormat& format, std::size_t rows, BumpArena& arena) {
  return {.x = arena.take<std::byte>(rows * format.input_stride()),
          .sums = arena.take<float>(rows * format.sum_count()),
          .scales = arena.take<float>(rows * format.input_scale_count())};
}

PreparedRow PreparedRows::row(const PanelFormat& format, std::int64_t index) const {
  const auto at = static_cast<std::size_t>(index);
  return {.x = x.data() + at * format.input_stride(),
          .sums = format.sum_count() > 0 ? sums.data() + at * format.sum_count() : nullptr,
          .scales = format.input_scale_count() > 0 ? scales.data() + at * format.input_scale_count() : nullptr};
}

}  // namespace moracle::cpu
