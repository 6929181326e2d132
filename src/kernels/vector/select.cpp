#include "kernels/vector/select.h"

#include "kernels/cpu/targets/targets.h"

namespace moracle {

const VectorOps& vector_ops(CpuFeatures features) {
  for (const cpu::TargetFacts& facts : cpu::kTargets) {
    const cpu::Target* const target = cpu::find_target(facts.name);
    if (target != nullptr && (features & facts.features) == facts.features) return target->vector_ops();
  }
  return scalar_vector_ops();
}

}  // namespace moracle
