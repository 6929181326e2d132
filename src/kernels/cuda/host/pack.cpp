#include "kernels/cuda/host/pack.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/checked.h"
#include "kernels/cuda/common/arithmetic.h"
#include "kernels/input_quant.h"
#include "scheme/codes.h"

namespace moracle::cuda {

namespace {

constexpr std::int64_t kPanelRows = 64;
constexpr std::uint64_t kPartAlignment = 256;

std::size_t scale_bytes(DeviceScale scale) {
  switch (scale) {
    case DeviceScale::f32:
      return 4;
    case DeviceScale::f16:
    case DeviceScale::bf16:
      return 2;
    case DeviceScale::e4m3:
    case DeviceScale::e8m0:
      return 1;
    case DeviceScale::none:
      break;
  }
  return 0;
}

Error unsupported(const Scheme& scheme) {
  return {.code = "quant.unsupported",
          .wanted = "a scheme that a card of the CUDA kernels names",
          .found = to_string(scheme)};
}

Result<InputKind> input_of(const Scheme& scheme) {
  const Element weight = scheme.weight.element;
  if (!scheme.activation) return weight == Element::f16 || weight == Element::f32 ? InputKind::split : InputKind::bf16;
  const InputKind kind = input_quant(*scheme.activation, std::nullopt).kind;
  if (kind == InputKind::split) return unsupported(scheme);
  return kind;
}

// Input column of each stored one.
std::vector<std::int32_t> column_order(const MatrixSpec& spec) {
  std::vector<std::int32_t> order = columns_by_group(spec.g_idx);
  if (!order.empty()) return order;
  order.resize(static_cast<std::size_t>(spec.cols));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

class MatrixWriter {
 public:
  MatrixWriter(const CanonicalLinear& linear, const PackForm& form, const MatrixArgs& to, std::span<std::byte> expert)
      : linear_(linear),
        spec_(linear.weight->spec()),
        form_(form),
        to_(to),
        expert_(expert),
        order_(column_order(spec_)),
        recode_(codes_as_e4m3(spec_.key.element)) {}

  Result<> write() {
    MatrixPanel panel;
    for (std::int64_t begin = 0; begin < spec_.rows; begin += kPanelRows) {
      const std::int64_t end = std::min(spec_.rows, begin + kPanelRows);
      MORACLE_TRY(linear_.weight->read(begin, end, panel));
      for (std::int64_t r = begin; r < end; ++r) {
        write_row(panel, r - begin, r);
        write_scales(panel, r - begin, r);
      }
    }
    if (to_.order != kAbsent) std::memcpy(at(to_.order), order_.data(), order_.size() * sizeof(std::int32_t));
    if (to_.bias != kAbsent && !linear_.bias.empty())
      std::memcpy(at(to_.bias), linear_.bias.data(), linear_.bias.size() * sizeof(float));
    std::memcpy(at(to_.global_scale), &spec_.global_scale, sizeof(float));
    const float input_scale = linear_.input_scale.value_or(1.0F);
    std::memcpy(at(to_.input_scale), &input_scale, sizeof(float));
    return Ok{};
  }

 private:
  std::byte* at(std::uint64_t offset) { return expert_.data() + offset; }

  void write_row(const MatrixPanel& panel, std::int64_t from, std::int64_t row) {
    const int bits = bits_of(form_.code);
    std::byte* const line = at(to_.codes) + static_cast<std::uint64_t>(row) * static_cast<std::uint64_t>(to_.padded) *
                                                static_cast<std::uint64_t>(bits) / 8;
    for (std::size_t k = 0; k < order_.size(); ++k) {
      const auto element = static_cast<std::size_t>(from * spec_.cols + order_[k]);
      if (form_.code == DeviceCode::f32) {
        std::memcpy(line + 4 * k, &panel.values[element], 4);
      } else if (bits == 16) {
        const float value = panel.values[element];
        const std::uint16_t code = form_.code == DeviceCode::f16 ? encode_f16(value) : encode_bf16(value);
        std::memcpy(line + 2 * k, &code, 2);
      } else if (bits == 8) {
        line[k] = static_cast<std::byte>(recode_ == nullptr ? panel.codes[element] : recode_[panel.codes[element]]);
      } else {
        line[k / 2] |= static_cast<std::byte>((panel.codes[element] & 15U) << (4 * (k % 2)));
      }
    }
  }

  void write_scales(const MatrixPanel& panel, std::int64_t from, std::int64_t row) {
    if (to_.scales == kAbsent) return;
    const std::uint64_t first = static_cast<std::uint64_t>(row) * static_cast<std::uint64_t>(to_.groups);
    for (std::int64_t g = 0; g < spec_.groups; ++g) {
      const auto element = static_cast<std::size_t>(from * spec_.groups + g);
      const std::uint64_t place = first + static_cast<std::uint64_t>(g);
      write_scale(panel.scales[element], at(to_.scales) + place * scale_bytes(form_.scale));
      if (to_.zeros != kAbsent) *(at(to_.zeros) + place) = static_cast<std::byte>(panel.zeros[element]);
    }
  }

  void write_scale(float value, std::byte* to) const {
    const std::uint16_t half = form_.scale == DeviceScale::f16 ? encode_f16(value) : encode_bf16(value);
    const std::uint8_t byte = form_.scale == DeviceScale::e4m3 ? encode_e4m3(value) : encode_e8m0(value);
    switch (scale_bytes(form_.scale)) {
      case 4:
        std::memcpy(to, &value, 4);
        break;
      case 2:
        std::memcpy(to, &half, 2);
        break;
      default:
        std::memcpy(to, &byte, 1);
        break;
    }
  }

  const CanonicalLinear& linear_;
  const MatrixSpec& spec_;
  const PackForm& form_;
  const MatrixArgs& to_;
  std::span<std::byte> expert_;
  std::vector<std::int32_t> order_;
  const std::uint8_t* recode_;
};

}  // namespace

Result<PackForm> form_of(const Scheme& scheme) {
  PackForm form;
  switch (scheme.weight.element) {
    case Element::int4:
      form.code = DeviceCode::int4;
      break;
    case Element::int8:
      form.code = DeviceCode::int8;
      break;
    case Element::e2m1:
      form.code = DeviceCode::e2m1;
      break;
    case Element::e4m3:
    case Element::e2m3:
    case Element::e3m2:
      form.code = DeviceCode::e4m3;
      break;
    case Element::bf16:
      form.code = DeviceCode::bf16;
      break;
    case Element::f16:
      form.code = DeviceCode::f16;
      break;
    case Element::f32:
      form.code = DeviceCode::f32;
      break;
    case Element::e5m2:
      return unsupported(scheme);
  }
  switch (scheme.weight.scale) {
    case ScaleType::none:
      form.scale = DeviceScale::none;
      break;
    case ScaleType::f32:
      form.scale = DeviceScale::f32;
      break;
    case ScaleType::f16:
      form.scale = DeviceScale::f16;
      break;
    case ScaleType::bf16:
      form.scale = DeviceScale::bf16;
      break;
    case ScaleType::e4m3:
      form.scale = DeviceScale::e4m3;
      break;
    case ScaleType::e8m0:
      form.scale = DeviceScale::e8m0;
      break;
  }
  MORACLE_ASSIGN(form.input, input_of(scheme));
  return form;
}

Result<MatrixArgs> lay_out(const MatrixSpec& spec, const PackForm& form, const MatrixParts& parts, std::uint64_t& end) {
  const std::int64_t padded = ceil_div(spec.cols, std::int64_t{kColumnStep}) * kColumnStep;
  const bool whole = !spec.key.quantized() || spec.groups <= 1;
  const std::int64_t group = whole ? padded : spec.group_cols;
  const bool folds = group % 128 == 0 || (group >= 16 && 128 % group == 0);
  if (!whole && !folds) {
    return Error{.code = "quant.group",
                 .where = spec.name,
                 .wanted = "groups of 16, 32, 64 or a multiple of 128 columns",
                 .found = std::to_string(group)};
  }
  const auto take = [&end](bool present, std::uint64_t bytes) {
    if (!present) return kAbsent;
    const std::uint64_t at = end;
    end = (at + bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
    return at;
  };
  MatrixArgs args{};
  args.rows = narrow<std::int32_t>(spec.rows);
  args.cols = narrow<std::int32_t>(spec.cols);
  args.padded = narrow<std::int32_t>(padded);
  args.group = narrow<std::int32_t>(group);
  args.groups = narrow<std::int32_t>(ceil_div(padded, group));
  const auto rows = static_cast<std::uint64_t>(spec.rows);
  const std::uint64_t scales = rows * static_cast<std::uint64_t>(args.groups);
  args.codes = take(true, rows * static_cast<std::uint64_t>(padded * bits_of(form.code)) / 8);
  args.scales = take(spec.key.quantized(), scales * scale_bytes(form.scale));
  args.zeros = take(spec.key.quantized() && !spec.key.symmetric, scales);
  args.bias = take(parts.bias, rows * sizeof(float));
  args.order = take(parts.order, static_cast<std::uint64_t>(spec.cols) * sizeof(std::int32_t));
  args.global_scale = take(true, sizeof(float));
  args.input_scale = args.global_scale + sizeof(float);
  return args;
}

Result<> pack_matrix(const CanonicalLinear& linear, const PackForm& form, const MatrixArgs& to,
                     std::span<std::byte> expert) {
  return MatrixWriter(linear, form, to, expert).write();
}

}  // namespace moracle::cuda
