// Scalar encode and decode of every number code. Bit-exact against the published definitions; kernels are tested
// against these.
#pragma once

#include <bit>
#include <cstdint>

namespace moracle {

// 16-bit floats. Encoding rounds to nearest, ties to even; f32 NaN stays NaN.
// What loads do for every scale and every unquantized weight is inline and without branches, so that loops over it
// vectorize, and constexpr, so that device code may call it.
[[nodiscard]] constexpr float decode_bf16(std::uint16_t code) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(code) << 16);
}
[[nodiscard]] constexpr std::uint16_t encode_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7FFFU + (bits >> 16 & 1U);
  const bool nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  return static_cast<std::uint16_t>((nan ? bits | 0x400000U : rounded) >> 16);
}
[[nodiscard]] constexpr float decode_f16(std::uint16_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x8000U) << 16;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(code & 0x7FFFU) << 13;
  // Multiplying by 2^112 moves the exponent from bias 15 to bias 127 and normalizes subnormals, exactly. Infinity and
  // NaN get the full exponent field on top.
  const auto finite = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112F);
  const std::uint32_t special = (0x0F7FFFFFU - magnitude) >> 31;
  return std::bit_cast<float>(sign | finite | special * 0x7F800000U);
}
[[nodiscard]] constexpr std::uint16_t encode_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  // Normal: the exponent changes its bias by 112. What overflows ends at infinity, 0x7C00.
  const std::uint32_t steps = ((magnitude + 0xFFFU + (magnitude >> 13 & 1U)) >> 13) - (112U << 10);
  const std::uint32_t normal = steps < 0x7C00U ? steps : 0x7C00U;
  // Subnormal: the last bit of 0.5 is the step of 2^-24, so that an addition rounds.
  const std::uint32_t small = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3F000000U;
  const std::uint32_t finite = magnitude < 0x38800000U ? small : normal;
  const std::uint32_t nan = 0x7E00U | (magnitude >> 13 & 0x3FFU);
  return static_cast<std::uint16_t>(sign | (magnitude > 0x7F800000U ? nan : finite));
}

// OCP FP8 E4M3 (FN: no infinity, NaN 0x7F/0xFF, max 448) and E5M2 (IEEE-like). Encoding saturates to the largest finite
// value, rounds to nearest even.
[[nodiscard]] constexpr float decode_e4m3(std::uint8_t code) {
  const std::uint32_t sign = (code & 0x80U) << 24U;
  const std::uint32_t magnitude = (code & 0x7FU) << 20U;
  // As decode_f16, from bias 7.
  const auto finite = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p120F);
  const bool nan = magnitude == 0x7FU << 20U;
  return std::bit_cast<float>(nan ? 0x7FC00000U : sign | finite);
}
[[nodiscard]] constexpr std::uint8_t encode_e4m3(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 24 & 0x80U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  // As encode_f16: the bias changes by 120, the last bit of 2^14 is the step of 2^-9, what overflows ends at 448, 0x7E.
  const std::uint32_t steps = ((magnitude + 0x7FFFFU + (magnitude >> 20 & 1U)) >> 20) - (120U << 3);
  const std::uint32_t normal = steps < 0x7EU ? steps : 0x7EU;
  const std::uint32_t small = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14F) - 0x46800000U;
  const std::uint32_t finite = magnitude < 0x3C800000U ? small : normal;
  return static_cast<std::uint8_t>(sign | (magnitude > 0x7F800000U ? 0x7FU : finite));
}
[[nodiscard]] float decode_e5m2(std::uint8_t code);
[[nodiscard]] std::uint8_t encode_e5m2(float value);

// OCP FP4 E2M1 (codes 0..15; 8 is -0): 0, .5, 1, 1.5, 2, 3, 4, 6. Encoding rounds to nearest even and saturates.
[[nodiscard]] float decode_e2m1(std::uint8_t code);
[[nodiscard]] std::uint8_t encode_e2m1(float value);

// OCP FP6 (codes 0..63).
[[nodiscard]] float decode_e2m3(std::uint8_t code);
[[nodiscard]] std::uint8_t encode_e2m3(float value);
[[nodiscard]] float decode_e3m2(std::uint8_t code);
[[nodiscard]] std::uint8_t encode_e3m2(float value);

// E8M0 scale byte: 2^(code - 127); 255 is NaN; 0 is 2^-127, a subnormal f32.
[[nodiscard]] constexpr float decode_e8m0(std::uint8_t code) {
  const std::uint32_t bits = code == 0 ? 0x00400000U : static_cast<std::uint32_t>(code) << 23;
  return std::bit_cast<float>(code == 255 ? 0x7FC00000U : bits);
}
// For an exact power of two in range: its byte. Others are truncated to the power of two below.
[[nodiscard]] constexpr std::uint8_t encode_e8m0(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t exponent = bits >> 23 & 0xFFU;
  const std::uint32_t finite = (bits >> 31) != 0 ? 0U : (exponent < 254U ? exponent : 254U);
  return static_cast<std::uint8_t>((bits & 0x7FFFFFFFU) > 0x7F800000U ? 255U : finite);
}

// Two's complement nibble <-> integer, and offset-binary (uint4b8 / uint8b128) helpers.
[[nodiscard]] constexpr int decode_int4(std::uint8_t nibble) {
  return static_cast<int>((nibble & 15U) ^ 8U) - 8;
}
[[nodiscard]] constexpr std::uint8_t encode_int4(int value) {
  return static_cast<std::uint8_t>(value & 15);
}
[[nodiscard]] constexpr int decode_uint4b8(std::uint8_t nibble) {
  return static_cast<int>(nibble & 15U) - 8;
}
[[nodiscard]] constexpr int decode_uint8b128(std::uint8_t byte) {
  return static_cast<int>(byte) - 128;
}

}  // namespace moracle
