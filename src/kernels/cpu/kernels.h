// Entry points of the CPU kernels: the same drivers over each target's table.
#pragma once

#include <memory>

#include "kernels/cpu/target.h"
#include "kernels/kernel.h"

namespace moracle::cpu {

Result<std::unique_ptr<PackedExperts>> pack_experts(const Target& target, Numerics numerics,
                                                    const CanonicalExperts& experts, const PackOptions& options);
Result<std::unique_ptr<PackedLinear>> pack_linear(const Target& target, Numerics numerics,
                                                  const CanonicalLinear& linear, const PackOptions& options);

}  // namespace moracle::cpu
