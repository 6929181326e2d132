// Scalar activation quantizers: the arithmetic every kernel with quantized activations is held against.
//
// The input is f32 and never rounded to 16 bits first. Divisions are true f32 divisions: multiplying by a reciprocal
// flips codes near ties. Rounding is to nearest, ties to even. `x` and the outputs of one call have the sizes stated;
// spans of other sizes are cut to the shortest.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "scheme/quant_key.h"

namespace moracle {

// INT8 of one token: scale = max(amax, 1e-10) / 127, q = rne(x / scale) within [-127, 127].
[[nodiscard]] float int8_dynamic_scale(std::span<const float> x);
void quantize_int8(std::span<const float> x, float scale, std::span<std::int8_t> q);

// FP8 E4M3 of one token, one group of 128, or a tensor: scale = max(amax / 448, 1 / (448 * 512)), q = e4m3(x / scale)
// saturating. A static scale is used as stored, widened to f32.
[[nodiscard]] float fp8_dynamic_scale(std::span<const float> x);
void quantize_fp8(std::span<const float> x, float scale, std::span<std::uint8_t> q);

// How the shared exponent of a block of 32 is found: `even` rounds amax up where its mantissa is 1.75 or more (the
// rule of the publishers' tools), `floor` truncates (the OCP text).
enum class Mxfp4Scale : std::uint8_t { even, floor };
// codes: E2M1, one a byte, [n]; scales: E8M0, [ceil(n / 32)].
void quantize_mxfp4(std::span<const float> x, Mxfp4Scale rule, std::span<std::uint8_t> codes,
                    std::span<std::uint8_t> scales);

// The other MX elements, blocks of 32 under an E8M0 scale. E2M1, E2M3 and E3M2: the `even` rule, which rounds amax up
// where the element would round it up to the next power of two (the rule of the publisher's tool; quantize_mxfp4 with
// Mxfp4Scale::even for E2M1). E4M3: the smallest power of two under which nothing saturates, 2^ceil(log2(amax / 448)).
// codes: one a byte, [n]; scales: E8M0, [ceil(n / 32)]. Elements that MX does not have leave the outputs as they are.
void quantize_mx(Element element, std::span<const float> x, std::span<std::uint8_t> codes,
                 std::span<std::uint8_t> scales);

// The E8M0 byte of a block whose largest magnitude is `amax`, by the rules above; 127 (one) for other elements.
[[nodiscard]] std::uint8_t mx_block_scale(Element element, float amax);

// NVFP4: block scales e4m3(global * amax / 6) over 16 elements under one f32 multiplier `global` (448 * 6 / amax of the
// calibration data; the reciprocal of a stored de-quantizing input scale). codes: E2M1, one a byte, [n]; scales: E4M3,
// [ceil(n / 16)]. The value of a code is decode_e2m1(code) * (decode_e4m3(scale) / global).
void quantize_nvfp4(std::span<const float> x, float global, std::span<std::uint8_t> codes,
                    std::span<std::uint8_t> scales);

// The arithmetic of one such block: its E4M3 scale, the value of a step, and what the values are multiplied by.
struct Nvfp4Block {
  std::uint8_t scale = 0;
  float step = 0.0F;
  float inverse = 0.0F;
};
[[nodiscard]] Nvfp4Block nvfp4_block(float amax, float global);

// How values that share a scale become numbers of a float element, as by the codes above: times `factor`, or over it,
// then rounded to `mantissa` bits, above 2^min_exponent, and to magnitudes of at most `most`. A number stands for
// itself times `scale`.
struct NumberRounding {
  float scale = 1.0F;
  float factor = 1.0F;
  bool divide = false;
  int mantissa = 3;
  int min_exponent = -6;
  float most = 448.0F;
};
// `amax`: the largest magnitude of the values. `static_scale`: as of quantize_to_codes() (scheme/activation_codes.h).
[[nodiscard]] NumberRounding number_rounding(const QuantKey& key, float amax, std::optional<float> static_scale);

}  // namespace moracle
