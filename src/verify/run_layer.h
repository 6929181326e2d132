// One layer's experts on random inputs, for whoever compares outputs.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "kernels/kernel.h"
#include "moe/layer_runner.h"
#include "scheme/canonical.h"

namespace moracle {

// Unit-variance inputs, and every expert hit in turn with weights that sum to one.
[[nodiscard]] LayerInput spread_input(const CanonicalExperts& experts, std::int64_t tokens, std::int64_t top_k,
                                      std::uint64_t seed);

// Runs once: [tokens, hidden]. Errors: "memory.allocate", those of the device.
Result<std::vector<float>> run_packed(LayerRunner& runner, const LayerInput& input);

// Packs with the card's implementation and runs once: [tokens, hidden]. Errors: those of packing, "memory.allocate".
Result<std::vector<float>> run_layer(const KernelCard& card, const CanonicalExperts& experts, const LayerInput& input,
                                     const PackOptions& how);

}  // namespace moracle
