// What a kernel's output of a synthetic layer is held against.
#pragma once

#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "moe/layer_runner.h"
#include "synth/layer_shapes.h"

namespace moracle {

// The relative error of the first tokens of `out` against ref, over synthetic_experts of seed 1: few tokens, since ref
// works in plain f32 and unpacked weights take four bytes each. Errors: "oracle.no_reference", those of packing.
Result<double> ref_error(const LayerShape& shape, const NamedScheme& scheme, ThreadPool& pool, const LayerInput& input,
                         const std::vector<float>& out);

}  // namespace moracle
