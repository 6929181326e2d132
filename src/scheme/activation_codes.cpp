#include "scheme/activation_codes.h"

#include <algorithm>
#include <array>

#include "scheme/activation_quant.h"
#include "scheme/codes.h"

namespace moracle {

namespace {

constexpr std::size_t kChunk = 256;

// Quantizes in chunks through a small buffer, so that no call allocates.
template <class Code, class Quantize, class Decode>
void replace_by_codes(std::span<float> values, Quantize quantize, Decode decode) {
  std::array<Code, kChunk> codes{};
  for (std::size_t first = 0; first < values.size(); first += kChunk) {
    const auto part = values.subspan(first, std::min(kChunk, values.size() - first));
    quantize(part, std::span(codes).first(part.size()));
    for (std::size_t i = 0; i < part.size(); ++i) part[i] = decode(codes[i]);
  }
}

// Null for elements that MX does not have.
float (*mx_decoder(Element element))(std::uint8_t) {
  switch (element) {
    case Element::e2m1:
      return decode_e2m1;
    case Element::e2m3:
      return decode_e2m3;
    case Element::e3m2:
      return decode_e3m2;
    case Element::e4m3:
      return decode_e4m3;
    default:
      return nullptr;
  }
}

// A block of at most 32 values under one power of two.
float to_mx_codes(Element element, std::span<float> values) {
  std::array<std::uint8_t, 1> scale{};
  replace_by_codes<std::uint8_t>(
      values, [&](auto in, auto out) { quantize_mx(element, in, out, scale); }, mx_decoder(element));
  return decode_e8m0(scale[0]);
}

}  // namespace

bool can_quantize_activation(const QuantKey& key) {
  using Kind = Granularity::Kind;
  const Kind kind = key.granularity.kind;
  if (key.scale == ScaleType::e8m0)
    return mx_decoder(key.element) != nullptr && kind == Kind::group && key.granularity.cols == 32 && key.dynamic &&
           !key.second_level;
  switch (key.element) {
    case Element::int8:
      return key.symmetric && (key.dynamic ? kind == Kind::token : kind == Kind::tensor);
    case Element::e4m3:
      return key.dynamic ? kind == Kind::token || kind == Kind::group : kind == Kind::tensor;
    case Element::e2m1:
      return kind == Kind::group && key.granularity.cols == 16 && key.dynamic && key.second_level &&
             key.scale == ScaleType::e4m3;
    default:
      return false;
  }
}

float quantize_to_codes(const QuantKey& key, std::optional<float> static_scale, std::span<float> values) {
  if (key.scale == ScaleType::e8m0) return to_mx_codes(key.element, values);
  if (key.element == Element::int8) {
    const float scale = key.dynamic ? int8_dynamic_scale(values) : static_scale.value_or(1.0F);
    replace_by_codes<std::int8_t>(
        values, [&](auto in, auto out) { quantize_int8(in, scale, out); },
        [](std::int8_t code) { return static_cast<float>(code); });
    return scale;
  }
  if (key.element == Element::e4m3) {
    const float scale = key.dynamic ? fp8_dynamic_scale(values) : static_scale.value_or(1.0F);
    replace_by_codes<std::uint8_t>(values, [&](auto in, auto out) { quantize_fp8(in, scale, out); }, decode_e4m3);
    return scale;
  }
  std::array<std::uint8_t, 1> block_scale{};
  const float global = static_scale.value_or(1.0F);
  replace_by_codes<std::uint8_t>(
      values, [&](auto in, auto out) { quantize_nvfp4(in, global, out, block_scale); }, decode_e2m1);
  return decode_e4m3(block_scale[0]) / global;
}

void quantize_dequantize_row(const QuantKey& key, std::optional<float> static_scale, std::span<float> row) {
  const bool grouped = key.granularity.kind == Granularity::Kind::group;
  const std::size_t width = grouped ? static_cast<std::size_t>(key.granularity.cols) : row.size();
  for (std::size_t first = 0; first < row.size(); first += width) {
    const auto part = row.subspan(first, std::min(width, row.size() - first));
    const float scale = quantize_to_codes(key, static_scale, part);
    for (float& value : part) value *= scale;
  }
}

}  // namespace moracle
