// Entry points of the CPU kernels: one pair of pack functions per instruction set, all over the same drivers.
#pragma once

#include <memory>

#include "kernels/cpu/panel.h"
#include "kernels/kernel.h"

namespace moracle::cpu {

Result<std::unique_ptr<PackedExperts>> pack_experts(const PanelOps& ops, const CanonicalExperts& experts,
                                                    const PackOptions& options);
Result<std::unique_ptr<PackedLinear>> pack_linear(const PanelOps& ops, const CanonicalLinear& linear,
                                                  const PackOptions& options);

}  // namespace moracle::cpu
