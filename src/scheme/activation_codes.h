// Activation quantization as kernels meet it: values that share a scale become the numbers that their codes stand for,
// times that scale.
#pragma once

#include <optional>
#include <span>

#include "scheme/quant_key.h"

namespace moracle {

// True for the activation keys that quantize_to_codes knows: int8 and E4M3 (dynamic per token or group, static per
// tensor), the MX formats (groups of 32: MXFP4, MXFP6, MXFP8) and NVFP4 (groups of 16).
[[nodiscard]] bool can_quantize_activation(const QuantKey& key);

// Quantizes values that share a scale (a token's row or one of its groups). Replaces each value by its code's
// number and returns the scale, so that value ~ code * scale. `static_scale`: the stored scale of a static key; for
// NVFP4 the f32 multiplier G of the block scales. The arithmetic is that of scheme/activation_quant.h.
[[nodiscard]] float quantize_to_codes(const QuantKey& key, std::optional<float> static_scale, std::span<float> values);

// One token's row [cols], quantized and dequantized in place.
void quantize_dequantize_row(const QuantKey& key, std::optional<float> static_scale, std::span<float> row);

}  // namespace moracle
