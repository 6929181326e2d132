#include "scheme/codes.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace moracle {
namespace {

constexpr float kNan = __builtin_nanf("");

// A sign bit, `exponent_bits` and `mantissa_bits`; subnormals as in IEEE 754. `max_code` is the largest finite
// magnitude.
struct SmallFloat {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  unsigned max_code;
  [[nodiscard]] constexpr unsigned sign_bit() const { return 1U << (exponent_bits + mantissa_bits); }
};

constexpr SmallFloat kE5m2{5, 2, 15, 0x7B};
constexpr SmallFloat kE2m1{2, 1, 1, 0x7};
constexpr SmallFloat kE2m3{2, 3, 1, 0x1F};
constexpr SmallFloat kE3m2{3, 2, 3, 0x1F};

float decode_magnitude(const SmallFloat& format, unsigned magnitude) {
  const unsigned exponent = magnitude >> format.mantissa_bits;
  const unsigned fraction = magnitude & ((1U << format.mantissa_bits) - 1U);
  if (exponent == 0) return std::ldexp(static_cast<float>(fraction), 1 - format.bias - format.mantissa_bits);
  return std::ldexp(static_cast<float>(fraction | (1U << format.mantissa_bits)),
                    static_cast<int>(exponent) - format.bias - format.mantissa_bits);
}

float decode(const SmallFloat& format, unsigned code) {
  const float magnitude = decode_magnitude(format, code & (format.sign_bit() - 1U));
  return (code & format.sign_bit()) != 0 ? -magnitude : magnitude;
}

// Rounds |value| to a whole number of steps of the binade it lies in. Consecutive codes are consecutive steps, so a
// carry into the next binade needs no special case.
std::uint8_t encode(const SmallFloat& format, float value) {
  const unsigned sign = std::signbit(value) ? format.sign_bit() : 0U;
  const float magnitude = std::fabs(value);
  if (!(magnitude < decode_magnitude(format, format.max_code)))
    return static_cast<std::uint8_t>(sign | format.max_code);
  const int lowest = 1 - format.bias;
  const int exponent = magnitude == 0.0F ? lowest : std::max(lowest, std::ilogb(magnitude));
  const float steps = std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent));
  const unsigned binade = static_cast<unsigned>(exponent - lowest) << format.mantissa_bits;
  return static_cast<std::uint8_t>(sign | (binade + static_cast<unsigned>(steps)));
}

}  // namespace

float decode_e5m2(std::uint8_t code) {
  const unsigned magnitude = code & 0x7FU;
  if (magnitude > 0x7CU) return kNan;
  if (magnitude == 0x7CU) return (code & 0x80U) != 0 ? -HUGE_VALF : HUGE_VALF;
  return decode(kE5m2, code);
}
std::uint8_t encode_e5m2(float value) {
  return std::isnan(value) ? static_cast<std::uint8_t>(std::signbit(value) ? 0xFF : 0x7F) : encode(kE5m2, value);
}

float decode_e2m1(std::uint8_t code) {
  return decode(kE2m1, code & 15U);
}
std::uint8_t encode_e2m1(float value) {
  return encode(kE2m1, value);
}
float decode_e2m3(std::uint8_t code) {
  return decode(kE2m3, code & 63U);
}
std::uint8_t encode_e2m3(float value) {
  return encode(kE2m3, value);
}
float decode_e3m2(std::uint8_t code) {
  return decode(kE3m2, code & 63U);
}
std::uint8_t encode_e3m2(float value) {
  return encode(kE3m2, value);
}

}  // namespace moracle
