// Scalar encode and decode of every number code. Bit-exact against the published definitions; kernels are tested
// against these.
#pragma once

#include <bit>
#include <cstdint>

namespace moracle {

// 16-bit floats. Encoding rounds to nearest, ties to even; f32 NaN stays NaN.
// Decoding is inline because loads decode every scale and every unquantized weight with it.
[[nodiscard]] inline float decode_bf16(std::uint16_t code) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(code) << 16);
}
[[nodiscard]] std::uint16_t encode_bf16(float value);
[[nodiscard]] inline float decode_f16(std::uint16_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x8000U) << 16;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(code & 0x7FFFU) << 13;
  // Multiplying by 2^112 moves the exponent from bias 15 to bias 127 and normalizes subnormals, exactly. Infinity and
  // NaN get the full exponent field on top. Without branches, so that loops over it vectorize.
  const auto finite = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112F);
  const std::uint32_t special = (0x0F7FFFFFU - magnitude) >> 31;
  return std::bit_cast<float>(sign | finite | special * 0x7F800000U);
}
[[nodiscard]] std::uint16_t encode_f16(float value);

// OCP FP8 E4M3 (FN: no infinity, NaN 0x7F/0xFF, max 448) and E5M2 (IEEE-like). Encoding saturates to the largest finite
// value, rounds to nearest even.
[[nodiscard]] float decode_e4m3(std::uint8_t code);
[[nodiscard]] std::uint8_t encode_e4m3(float value);
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
[[nodiscard]] float decode_e8m0(std::uint8_t code);
// For an exact power of two in range: its byte. Others are truncated to the power of two below.
[[nodiscard]] std::uint8_t encode_e8m0(float value);

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
