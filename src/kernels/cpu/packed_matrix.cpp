#include "kernels/cpu/packed_matrix.h"

#include <algorithm>
#include <array>

#include "base/checked.h"
#include "scheme/activation_codes.h"
#include "scheme/codes.h"

namespace moracle::cpu {

namespace {

PanelScale stored_scale(ScaleType type) {  // kept as published
  if (type == ScaleType::f16) return PanelScale::f16;
  if (type == ScaleType::bf16) return PanelScale::bf16;
  if (type == ScaleType::e4m3) return PanelScale::e4m3;
  if (type == ScaleType::e8m0) return PanelScale::e8m0;
  return PanelScale::f32;
}

void choose_kernels(const PanelOps& ops, PanelFormat& format) {
  const int scaled = format.group_input_scales ? 1 : 0;
  const int zeros = format.zeros ? 1 : 0;
  format.run_from = ops.run_from;
  switch (format.code) {
    case PanelCode::q4:
      format.multiply = ops.q4[scaled][zeros];
      format.multiply_run = ops.q4_run;
      return;
    case PanelCode::q8:
      format.multiply = ops.q8[scaled][zeros];
      format.multiply_run = ops.q8_run;
      return;
    case PanelCode::e2m1:
      format.multiply = ops.e2m1[scaled];
      format.multiply_run = ops.e2m1_run;
      return;
    case PanelCode::e4m3:
      format.multiply = ops.e4m3[scaled];
      format.multiply_run = ops.e4m3_run;
      return;
    case PanelCode::bf16:
      format.multiply = ops.bf16;
      return;
    case PanelCode::f16:
      format.multiply = ops.f16;
      return;
    case PanelCode::f32:
      format.multiply = ops.f32;
      return;
  }
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
  for (std::uint8_t code = 0; code < codes.size(); ++code) codes[code] = encode_e4m3(decode(code));
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
  return scale == PanelScale::f16 || scale == PanelScale::bf16 ? 2 : 1;
}

std::size_t step_bytes(PanelCode code) {
  switch (code) {
    case PanelCode::q4:
    case PanelCode::e2m1:
      return 128;
    case PanelCode::q8:
    case PanelCode::e4m3:
      return 256;
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
  const std::size_t lines = (static_cast<std::size_t>(padded_cols()) * input_bytes() + kLine - 1) / kLine;
  return (lines | 1U) * kLine;
}

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
  if (linear.activation) {
    format.activation = linear.activation;
    if (linear.activation->granularity.kind == Granularity::Kind::group) {
      format.group_input_scales = true;
      format.group_cols = std::min<std::int64_t>(format.group_cols, linear.activation->granularity.cols);
    }
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
  format.input = InputForm::f32;
  if (quantized(format.code)) format.input = ops.quantized_input;
  if (format.code == PanelCode::bf16) format.input = ops.bf16_input;
  return format;
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

// Replaces a row by the numbers its codes stand for, and writes their scales, one per group of the weight or one.
void quantize_row(const PanelFormat& format, std::optional<float> input_scale, float* values, float* scales) {
  const std::span<float> row{values, static_cast<std::size_t>(format.cols)};
  const QuantKey& key = *format.activation;
  const std::int64_t width = key.granularity.kind == Granularity::Kind::group ? key.granularity.cols : format.cols;
  for (std::int64_t first = 0; first < format.cols; first += width) {
    const auto count = static_cast<std::size_t>(std::min(width, format.cols - first));
    const float scale = quantize_to_codes(key, input_scale, row.subspan(static_cast<std::size_t>(first), count));
    if (!format.group_input_scales) {
      scales[0] = scale;
      continue;
    }
    const std::int64_t end = std::min(first + width, format.cols);
    for (std::int64_t g = first / format.group_cols; g * format.group_cols < end; ++g) scales[g] = scale;
  }
}

}  // namespace

void prepare_row(const PanelOps& ops, const PanelFormat& format, std::span<const std::int32_t> order,
                 std::optional<float> input_scale, const float* x, float* scratch, const PreparedRow& row) {
  const auto cols = static_cast<std::size_t>(format.cols);
  const auto padded = static_cast<std::size_t>(format.padded_cols());
  float* values = format.input == InputForm::f32 ? reinterpret_cast<float*>(row.x) : scratch;
  if (order.empty()) {
    std::copy(x, x + cols, values);
  } else {
    for (std::size_t p = 0; p < cols; ++p) values[p] = x[order[p]];
  }
  std::fill(values + cols, values + padded, 0.0F);
  if (format.activation) quantize_row(format, input_scale, values, row.scales);
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
  const auto groups = static_cast<std::size_t>(format.groups);
  return BumpArena::cost<std::byte>(rows * format.input_stride()) +
         BumpArena::cost<float>(format.zeros ? rows * groups : 0) +
         BumpArena::cost<float>(rows * format.input_scale_count());
}

PreparedRows PreparedRows::take(const PanelFormat& format, std::size_t rows, BumpArena& arena) {
  const auto groups = static_cast<std::size_t>(format.groups);
  return {.x = arena.take<std::byte>(rows * format.input_stride()),
          .sums = arena.take<float>(format.zeros ? rows * groups : 0),
          .scales = arena.take<float>(rows * format.input_scale_count())};
}

PreparedRow PreparedRows::row(const PanelFormat& format, std::int64_t index) const {
  const auto at = static_cast<std::size_t>(index);
  return {.x = x.data() + at * format.input_stride(),
          .sums = format.zeros ? sums.data() + at * static_cast<std::size_t>(format.groups) : nullptr,
          .scales = format.activation ? scales.data() + at * format.input_scale_count() : nullptr};
}

void multiply_rows(const PanelFormat& format, float global_scale, std::span<const PreparedRow> rows,
                   const std::byte* panel, float* out, std::int64_t out_stride) {
  const void* x[kMaxRun];
  const float* sums[kMaxRun];
  const float* scales[kMaxRun];
  float factors[kMaxRun];
  for (std::size_t t = 0; t < rows.size(); ++t) {
    x[t] = rows[t].x;
    sums[t] = rows[t].sums;
    scales[t] = rows[t].scales;
    factors[t] = global_scale;
    if (format.activation && !format.group_input_scales) factors[t] *= rows[t].scales[0];
  }
  PanelArgs args{.tokens = narrow<std::int64_t>(rows.size()),
                 .x = x,
                 .sums = sums,
                 .input_scales = scales,
                 .panel = panel,
                 .groups = format.groups,
                 .steps = format.steps,
                 .last_steps = format.last_steps,
                 .scale = format.scale,
                 .zeros = format.zeros,
                 .scaled = format.group_input_scales,
                 .global_scale = factors,
                 .out = out,
                 .out_stride = out_stride};
  if (format.multiply_run != nullptr && args.tokens >= format.run_from) {
    format.multiply_run(args);
    return;
  }
  const Parts tiles(args.tokens, kMaxTile);
  for (std::int64_t i = 0; i < tiles.size(); ++i) {
    const std::int64_t first = tiles.begin(i);
    args.tokens = tiles.begin(i + 1) - first;
    args.x = x + first;
    args.sums = sums + first;
    args.input_scales = scales + first;
    args.global_scale = factors + first;
    args.out = out + first * out_stride;
    format.multiply[args.tokens - 1](args);
  }
}

}  // namespace moracle::cpu
