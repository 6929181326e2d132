// Layers of Mamba-2, which several architectures have.
#pragma once

#include <cstdint>
#include <string>

#include "model/spec/config.h"
#include "model/spec/spec.h"

namespace moracle {

// What all layers of Mamba-2 share.
struct Mamba2Sizes {
  StateSpaceShape shape{};
  std::int64_t kernel = 0;  // taps
  bool conv_bias = true;
  bool bias = false;  // of the projections
};

// The bounds of steps by time_step_limit; without the key they stay. Errors: "config.type", "config.range".
Result<> read_step_limit(const ModelConfig& config, StateSpaceShape& shape);

// The layer below `path`. Rows of its one projection are [gate | x | b | c | steps].
[[nodiscard]] StateSpaceSpec mamba2(const std::string& path, const CommonConfig& common, const Mamba2Sizes& sizes);

}  // namespace moracle
