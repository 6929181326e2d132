// Activation keys of the schemes as plain arguments, and back.
#pragma once

#include <optional>

#include "kernels/args/matrix.h"
#include "scheme/quant_key.h"

namespace moracle {

// Of a key that can_quantize_activation() holds for. `scale`: what is stored with it.
[[nodiscard]] InputQuant input_quant(const QuantKey& key, std::optional<float> scale);
// Empty where numbers stay as they are.
[[nodiscard]] std::optional<QuantKey> key_of(const InputQuant& input);

}  // namespace moracle
