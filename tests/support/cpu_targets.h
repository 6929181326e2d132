// The targets of CPU kernels that this build has.
#pragma once

#include <iterator>
#include <vector>

#include "kernels/cpu/targets/targets.h"
#include "machine/machine.h"

namespace moracle::test {

struct CpuTarget {
  const cpu::TargetFacts& facts;
  const cpu::Target& target;
  [[nodiscard]] bool runs_here() const { return (probe_machine().cpu_features & facts.features) == facts.features; }
};

inline std::vector<CpuTarget> cpu_targets() {
  std::vector<CpuTarget> all;
  for (const cpu::TargetFacts& facts : cpu::kTargets) {
    const cpu::Target* const target = cpu::find_target(facts.name);
    if (target != nullptr) all.push_back({facts, *target});
  }
  return all;
}

// The one that every CPU has which has any: its features are those that packing needs.
inline CpuTarget least_cpu_target() {
  return cpu_targets().back();
}

}  // namespace moracle::test
