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

}  // namespace

bool can_quantize_activation(const QuantKey& key) {
  using Kind = Granularity::Kind;
  const Kind kind = key.granularity.kind;
  switch (key.element) {
    case Element::int8:
      return key.symmetric && (key.dynamic ? kind == Kind::token : kind == Kind::tensor);
    case Element::e4m3:
      return key.scale != ScaleType::e8m0 &&
             (key.dynamic ? kind == Kind::token || kind == Kind::group : kind == Kind::tensor);
    case Element::e2m1:
      if (kind != Kind::group || !key.dynamic) return false;
      return key.second_level ? key.granularity.cols == 16 && key.scale == ScaleType::e4m3
                              : key.granularity.cols == 32 && key.scale == ScaleType::e8m0;
    default:
      return false;
  }
}

float quantize_to_codes(const QuantKey& key, std::optional<float> static_scale, std::span<float> values) {
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
  std::array<std::uint8_t, 2> block_scale{};
  const float global = static_scale.value_or(1.0F);
  replace_by_codes<std::uint8_t>(
      values,
      [&](auto in, auto out) {
        if (key.second_level) {
          quantize_nvfp4(in, global, out, block_scale);
        } else {
          quantize_mxfp4(in, Mxfp4Scale::even, out, block_scale);
        }
      },
      decode_e2m1);
  return key.second_level ? decode_e4m3(block_scale[0]) / global : decode_e8m0(block_scale[0]);
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
