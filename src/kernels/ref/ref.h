// Entry points of the reference kernel.
#pragma once

#include <memory>

#include "kernels/kernel.h"

namespace moracle::ref {

Result<std::unique_ptr<PackedExperts>> pack_experts(const CanonicalExperts& experts, const PackOptions& options);
Result<std::unique_ptr<PackedLinear>> pack_linear(const CanonicalLinear& linear, const PackOptions& options);

}  // namespace moracle::ref
