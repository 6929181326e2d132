#include "kernels/cpu/packed_matrix.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/checked.h"
#include "scheme/codes.h"

namespace moracle::cpu {

namespace {

PanelScale stored_scale(ScaleType type) {
  // The published 16-bit scales are kept as they are; everything else is exact in f32.
  if (type == ScaleType::f16) return PanelScale::f16;
  if (type == ScaleType::bf16) return PanelScale::bf16;
  return PanelScale::f32;
}

std::size_t step_bytes(PanelCode code) {
  switch (code) {
    case PanelCode::q4:
      return 128;
    case PanelCode::q8:
      return 256;
    case PanelCode::bf16:
    case PanelCode::f16:
      return 512;
    case PanelCode::f32:
      return 1024;
  }
  return 0;
}

const PanelMultiply* kernels_for(const PanelOps& ops, PanelCode code, bool zeros) {
  switch (code) {
    case PanelCode::q4:
      return ops.q4[zeros ? 1 : 0];
    case PanelCode::q8:
      return ops.q8[zeros ? 1 : 0];
    case PanelCode::bf16:
      return ops.bf16;
    case PanelCode::f16:
      return ops.f16;
    case PanelCode::f32:
      return ops.f32;
  }
  return nullptr;
}

// Codes of the 8 columns from packed position `p` on, byte i = column i; positions from `end` on are zero.
std::uint64_t eight_codes(const std::uint8_t* row, std::span<const std::int32_t> order, std::int64_t p,
                          std::int64_t end) {
  std::uint64_t codes = 0;
  if (order.empty() && p + kStepColumns <= end) {
    std::memcpy(&codes, row + p, sizeof codes);
    return codes;
  }
  for (std::int64_t i = 0; i < std::min(kStepColumns, end - p); ++i) {
    const auto column = order.empty() ? p + i : std::int64_t{order[static_cast<std::size_t>(p + i)]};
    codes |= std::uint64_t{row[column]} << static_cast<unsigned>(8 * i);
  }
  return codes;
}

// Eight nibbles in eight bytes to the q4 lane: even columns in the low half, odd ones in the high half, each in order.
std::uint32_t q4_lane(std::uint64_t codes) {
  const auto half = [](std::uint64_t bytes) {
    const std::uint64_t even = bytes & 0x000F000F000F000FU;
    const std::uint64_t pairs = even | even >> 12U;  // nibbles 0, 1 in byte 0 and nibbles 2, 3 in byte 4
    return static_cast<std::uint32_t>((pairs & 0xFFU) | (pairs >> 24U & 0xFF00U));
  };
  return half(codes) | half(codes >> 8U) << 16U;
}

// Writes one row's codes of one group into the steps that begin at `out`.
void pack_row(PanelCode code, const std::uint8_t* codes, std::span<const std::int32_t> order, std::int64_t first,
              std::int64_t end, std::int64_t row, std::byte* out) {
  constexpr std::int64_t kLine = kPanelRows * 4;
  for (std::int64_t p = first; p < end; p += kStepColumns) {
    const std::uint64_t eight = eight_codes(codes, order, p, end);
    if (code == PanelCode::q4) {
      const std::uint32_t lane = q4_lane(eight);
      std::memcpy(out + row * 4, &lane, sizeof lane);
      out += kLine;
    } else {
      const std::uint64_t signed_codes = eight ^ 0x8080808080808080U;
      const std::uint32_t lanes[2] = {static_cast<std::uint32_t>(signed_codes),
                                      static_cast<std::uint32_t>(signed_codes >> 32U)};
      std::memcpy(out + row * 4, &lanes[0], sizeof lanes[0]);
      std::memcpy(out + kLine + row * 4, &lanes[1], sizeof lanes[1]);
      out += 2 * kLine;
    }
  }
}

void pack_scale(PanelScale form, float scale, std::int64_t row, std::byte* out) {
  if (form == PanelScale::f32) {
    std::memcpy(out + row * 4, &scale, 4);
    return;
  }
  const std::uint16_t code = form == PanelScale::f16 ? encode_f16(scale) : encode_bf16(scale);
  std::memcpy(out + row * 2, &code, 2);
}

void pack_quantized(const PanelFormat& format, std::span<const std::int32_t> order, const MatrixPanel& panel,
                    std::int64_t first_row, std::int64_t rows, std::byte* out) {
  const std::size_t scale_bytes = kPanelRows * (format.scale == PanelScale::f32 ? 4U : 2U);
  for (std::int64_t g = 0; g < format.groups; ++g) {
    const std::int64_t steps = g + 1 == format.groups ? format.last_steps : format.steps;
    const std::int64_t first = g * format.group_cols;
    const std::int64_t count = std::min(format.group_cols, format.cols - first);
    std::byte* tail = out + static_cast<std::size_t>(steps) * step_bytes(format.code);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::uint8_t* codes = panel.codes.data() + (first_row + row) * format.cols;
      pack_row(format.code, codes, order, first, first + count, row, out);
      const auto at = static_cast<std::size_t>((first_row + row) * format.groups + g);
      pack_scale(format.scale, panel.scales[at], row, tail);
      if (format.zeros) tail[scale_bytes + static_cast<std::size_t>(row)] = static_cast<std::byte>(panel.zeros[at]);
    }
    out = tail + scale_bytes + (format.zeros ? static_cast<std::size_t>(kPanelRows) : 0);
  }
}

void pack_dense(const PanelFormat& format, const MatrixPanel& panel, std::int64_t first_row, std::int64_t rows,
                std::byte* out) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* values = panel.values.data() + (first_row + row) * format.cols;
    for (std::int64_t c = 0; c < format.cols; ++c) {
      if (format.code == PanelCode::f32) {
        std::memcpy(out + c * 128 + row * 4, values + c, 4);
      } else {
        const std::uint16_t code = format.code == PanelCode::f16 ? encode_f16(values[c]) : encode_bf16(values[c]);
        std::memcpy(out + c / 2 * 128 + row * 4 + c % 2 * 2, &code, 2);
      }
    }
  }
}

}  // namespace

std::size_t PanelFormat::input_stride() const {
  constexpr std::size_t kLine = 64;
  const std::size_t lines = (static_cast<std::size_t>(padded_cols()) * input_bytes() + kLine - 1) / kLine;
  return (lines | 1U) * kLine;
}

Result<PanelFormat> panel_format(const MatrixSpec& spec, const PanelOps& ops) {
  PanelFormat format;
  format.rows = spec.rows;
  format.cols = spec.cols;
  switch (spec.key.element) {
    case Element::int4:
      format.code = PanelCode::q4;
      break;
    case Element::int8:
      format.code = PanelCode::q8;
      break;
    case Element::bf16:
      format.code = PanelCode::bf16;
      break;
    case Element::f16:
      format.code = PanelCode::f16;
      break;
    case Element::f32:
      format.code = PanelCode::f32;
      break;
    default:
      return Error{.code = "kernel.scheme",
                   .where = spec.name,
                   .wanted = "int4, int8 or unquantized weights",
                   .found = to_string(spec.key)};
  }
  const bool quantized = spec.key.quantized();
  format.zeros = quantized && !spec.key.symmetric;
  format.scale = stored_scale(spec.key.scale);
  format.group_cols = quantized ? spec.group_cols : spec.cols;
  format.groups = quantized ? spec.groups : 1;
  format.steps = ceil_div(format.group_cols, kStepColumns);
  format.last_steps = ceil_div(spec.cols - (format.groups - 1) * format.group_cols, kStepColumns);
  format.panels = ceil_div(spec.rows, kPanelRows);
  const auto steps = static_cast<std::size_t>((format.groups - 1) * format.steps + format.last_steps);
  format.panel_bytes = steps * step_bytes(format.code);
  if (quantized) {
    const std::size_t group_tail =
        static_cast<std::size_t>(kPanelRows) * ((format.scale == PanelScale::f32 ? 4U : 2U) + (format.zeros ? 1U : 0U));
    format.panel_bytes += static_cast<std::size_t>(format.groups) * group_tail;
  }
  format.multiply = kernels_for(ops, format.code, format.zeros);
  format.input = InputForm::f32;
  if (format.code == PanelCode::q4 || format.code == PanelCode::q8) format.input = ops.integer_input;
  if (format.code == PanelCode::bf16) format.input = ops.bf16_input;
  return format;
}

std::vector<std::int32_t> column_order(const MatrixSpec& spec) {
  if (spec.g_idx.empty()) return {};
  std::vector<std::int32_t> order(static_cast<std::size_t>(spec.cols));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return spec.g_idx[static_cast<std::size_t>(a)] < spec.g_idx[static_cast<std::size_t>(b)];
  });
  return order;
}

Result<> pack_panels(const MatrixSource& source, const PanelFormat& format, std::span<const std::int32_t> order,
                     std::int64_t begin, std::int64_t end, std::byte* out, std::size_t stride, MatrixPanel& panel) {
  constexpr std::int64_t kPanelsPerRead = 2;  // 64 rows: whole cache lines of formats that store columns of 16 rows
  for (std::int64_t p = begin; p < end; p += kPanelsPerRead) {
    const std::int64_t last = std::min(p + kPanelsPerRead, end);
    const std::int64_t first_row = p * kPanelRows;
    const std::int64_t end_row = std::min(last * kPanelRows, format.rows);
    MORACLE_TRY(source.read(first_row, end_row, panel));
    for (std::int64_t q = p; q < last; ++q) {
      const std::int64_t row = (q - p) * kPanelRows;
      const std::int64_t rows = std::min(kPanelRows, end_row - first_row - row);
      std::byte* at = out + static_cast<std::size_t>(q - begin) * stride;
      std::memset(at, 0, format.panel_bytes);  // padding rows and columns hold zero scales and codes
      if (format.code == PanelCode::q4 || format.code == PanelCode::q8) {
        pack_quantized(format, order, panel, row, rows, at);
      } else {
        pack_dense(format, panel, row, rows, at);
      }
    }
  }
  return Ok{};
}

void prepare_row(const PanelOps& ops, const PanelFormat& format, std::span<const std::int32_t> order, const float* x,
                 float* scratch, std::byte* row, float* sums) {
  const auto cols = static_cast<std::size_t>(format.cols);
  const auto padded = static_cast<std::size_t>(format.padded_cols());
  float* values = format.input == InputForm::f32 ? reinterpret_cast<float*>(row) : scratch;
  if (order.empty()) {
    std::copy(x, x + cols, values);
  } else {
    for (std::size_t p = 0; p < cols; ++p) values[p] = x[order[p]];
  }
  std::fill(values + cols, values + padded, 0.0F);
  if (format.input == InputForm::bf16) {
    auto* rounded = reinterpret_cast<std::uint16_t*>(row);
    ops.to_bf16(values, rounded, narrow<std::int64_t>(padded));
    if (sums != nullptr) {  // the sums belong to the values that are multiplied, so after the rounding
      for (std::size_t p = 0; p < padded; ++p) values[p] = decode_bf16(rounded[p]);
    }
  }
  if (sums == nullptr) return;
  for (std::int64_t g = 0; g < format.groups; ++g) {
    const std::int64_t first = g * format.group_cols;
    const std::int64_t end = std::min(first + format.group_cols, format.cols);
    float sum = 0.0F;
    for (std::int64_t k = first; k < end; ++k) sum += values[k];
    sums[g] = sum;
  }
}

void multiply_tile(const PanelFormat& format, float global_scale, const TileRows& rows, int tile,
                   const std::byte* panel, float* out, std::int64_t out_stride) {
  PanelArgs args{.x = {},
                 .sums = {},
                 .panel = panel,
                 .groups = format.groups,
                 .steps = format.steps,
                 .last_steps = format.last_steps,
                 .scale = format.scale,
                 .global_scale = global_scale,
                 .out = out,
                 .out_stride = out_stride};
  for (int t = 0; t < tile; ++t) {
    args.x[t] = rows.x[t];
    args.sums[t] = rows.sums[t];
  }
  format.multiply[tile - 1](args);
}

}  // namespace moracle::cpu
