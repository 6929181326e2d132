// Random weights in canonical form, made on the fly: what a benchmark packs when no checkpoint is at hand.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "scheme/canonical.h"
#include "synth/layer_shapes.h"

namespace moracle {

// The experts `chosen` (numbers below shape.experts) of one layer; the same seed, shape and expert number always give
// the same weights. Scales make the weights' standard deviation about 1 / sqrt(cols), so that activations keep their
// size. Errors: "quant.group" when a group does not divide its dimension.
Result<CanonicalExperts> synthetic_experts(const LayerShape& shape, const NamedScheme& scheme, std::uint64_t seed,
                                           const std::vector<std::int32_t>& chosen);

}  // namespace moracle
