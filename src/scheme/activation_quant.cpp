#include "scheme/activation_quant.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "scheme/codes.h"

namespace moracle {
namespace {

float absolute_max(std::span<const float> x) {
  float amax = 0.0F;
  for (const float value : x) amax = std::max(amax, std::fabs(value));
  return amax;
}

// How an MX element is encoded, and how its block finds the shared exponent: `carry` is added to the bits of amax, so
// that magnitudes from some mantissa on count as the next power of two; `top` is the exponent of the largest code.
struct MxElement {
  std::uint8_t (*encode)(float);
  std::uint32_t carry;
  int top;
};
constexpr MxElement kMxE2m1{encode_e2m1, 0x200000U, 2};  // from 1.75 on
constexpr MxElement kMxE2m1Floor{encode_e2m1, 0U, 2};
constexpr MxElement kMxE2m3{encode_e2m3, 0x080000U, 2};  // from 1.9375 on
constexpr MxElement kMxE3m2{encode_e3m2, 0x100000U, 4};  // from 1.875 on
constexpr MxElement kMxE4m3{encode_e4m3, 0x1FFFFFU, 8};  // above 1.75, since 448 = 1.75 * 2^8

// Null for elements that MX does not have.
const MxElement* mx_element(Element element) {
  switch (element) {
    case Element::e2m1:
      return &kMxE2m1;
    case Element::e2m3:
      return &kMxE2m3;
    case Element::e3m2:
      return &kMxE3m2;
    case Element::e4m3:
      return &kMxE4m3;
    default:
      return nullptr;
  }
}

// E8M0 byte of a block whose largest magnitude is amax.
std::uint8_t mx_scale(float amax, const MxElement& element) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(amax == 0.0F ? 0x1p-126F : amax) + element.carry;
  const int exponent = static_cast<int>(bits >> 23 & 0xFFU) - 127;
  return static_cast<std::uint8_t>(std::clamp(exponent - element.top, -127, 127) + 127);
}

// Runs body(x, codes, scale byte) over blocks of `width`.
template <class Body>
void for_blocks(std::span<const float> x, std::size_t width, std::span<std::uint8_t> codes,
                std::span<std::uint8_t> scales, Body body) {
  const std::size_t count = std::min(x.size(), codes.size());
  for (std::size_t block = 0; block < scales.size() && block * width < count; ++block) {
    const std::size_t begin = block * width;
    const std::size_t size = std::min(width, count - begin);
    body(x.subspan(begin, size), codes.subspan(begin, size), scales[block]);
  }
}

void quantize_blocks(const MxElement& element, std::span<const float> x, std::span<std::uint8_t> codes,
                     std::span<std::uint8_t> scales) {
  for_blocks(x, 32, codes, scales, [&](std::span<const float> in, std::span<std::uint8_t> out, std::uint8_t& scale) {
    scale = mx_scale(absolute_max(in), element);
    // A power of two: multiplying by its reciprocal is exact.
    const float inverse = std::ldexp(1.0F, 127 - static_cast<int>(scale));
    for (std::size_t i = 0; i < in.size(); ++i) out[i] = element.encode(in[i] * inverse);
  });
}

float fp8_scale(float amax) {
  return std::max(amax / 448.0F, 1.0F / (448.0F * 512.0F));
}

// Of values that are scaled already.
NumberRounding rounding_to(Element element) {
  if (element == Element::e2m1) return {.mantissa = 1, .min_exponent = 0, .most = 6.0F};
  if (element == Element::e2m3) return {.mantissa = 3, .min_exponent = 0, .most = 7.5F};
  if (element == Element::e3m2) return {.mantissa = 2, .min_exponent = -2, .most = 28.0F};
  return {};
}

}  // namespace

float int8_dynamic_scale(std::span<const float> x) {
  return std::max(absolute_max(x), 1e-10F) / 127.0F;
}

void quantize_int8(std::span<const float> x, float scale, std::span<std::int8_t> q) {
  const std::size_t count = std::min(x.size(), q.size());
  for (std::size_t i = 0; i < count; ++i) {
    const float steps = std::nearbyint(x[i] / scale);
    // The comparison is false for NaN, which no integer can hold.
    q[i] = static_cast<std::int8_t>(steps >= -127.0F ? std::min(steps, 127.0F) : -127.0F);
  }
}

float fp8_dynamic_scale(std::span<const float> x) {
  return fp8_scale(absolute_max(x));
}

void quantize_fp8(std::span<const float> x, float scale, std::span<std::uint8_t> q) {
  const std::size_t count = std::min(x.size(), q.size());
  for (std::size_t i = 0; i < count; ++i) q[i] = encode_e4m3(x[i] / scale);
}

void quantize_mxfp4(std::span<const float> x, Mxfp4Scale rule, std::span<std::uint8_t> codes,
                    std::span<std::uint8_t> scales) {
  quantize_blocks(rule == Mxfp4Scale::even ? kMxE2m1 : kMxE2m1Floor, x, codes, scales);
}

void quantize_mx(Element element, std::span<const float> x, std::span<std::uint8_t> codes,
                 std::span<std::uint8_t> scales) {
  if (const MxElement* found = mx_element(element)) quantize_blocks(*found, x, codes, scales);
}

std::uint8_t mx_block_scale(Element element, float amax) {
  const MxElement* found = mx_element(element);
  return found == nullptr ? std::uint8_t{127} : mx_scale(amax, *found);
}

Nvfp4Block nvfp4_block(float amax, float global) {
  constexpr float kSixth = 1.0F / 6.0F;
  Nvfp4Block block;
  block.scale = encode_e4m3(global * (amax * kSixth));
  block.step = decode_e4m3(block.scale) * (1.0F / global);
  block.inverse = block.step == 0.0F ? 0.0F : 1.0F / block.step;
  return block;
}

void quantize_nvfp4(std::span<const float> x, float global, std::span<std::uint8_t> codes,
                    std::span<std::uint8_t> scales) {
  for_blocks(x, 16, codes, scales,
             [global](std::span<const float> in, std::span<std::uint8_t> out, std::uint8_t& scale) {
               const Nvfp4Block block = nvfp4_block(absolute_max(in), global);
               scale = block.scale;
               for (std::size_t i = 0; i < in.size(); ++i) out[i] = encode_e2m1(in[i] * block.inverse);
             });
}

NumberRounding number_rounding(const QuantKey& key, float amax, std::optional<float> static_scale) {
  NumberRounding rounding = rounding_to(key.element);
  const float given = static_scale.value_or(1.0F);
  if (key.scale == ScaleType::e8m0) {
    rounding.scale = decode_e8m0(mx_block_scale(key.element, amax));
    rounding.factor = 1.0F / rounding.scale;  // a power of two
  } else if (key.element == Element::e2m1) {
    const Nvfp4Block block = nvfp4_block(amax, given);
    rounding.scale = decode_e4m3(block.scale) / given;
    rounding.factor = block.inverse;
  } else {
    rounding.scale = key.dynamic ? fp8_scale(amax) : given;
    rounding.factor = rounding.scale;
    rounding.divide = true;
  }
  return rounding;
}

}  // namespace moracle
