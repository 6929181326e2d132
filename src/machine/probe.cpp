#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <memory>
#include <thread>

#include "machine/cpu_probe.h"
#include "machine/host_limits.h"
#include "machine/machine.h"

namespace moracle {
namespace {

// CPUs the scheduler may put this process on. The mask grows until the kernel's own fits.
std::vector<int> allowed_cpus() {
  for (int capacity = 1024; capacity <= 65536; capacity *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(static_cast<std::size_t>(capacity)),
                                                               [](cpu_set_t* p) { CPU_FREE(p); });
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(capacity));
    if (!set) break;
    CPU_ZERO_S(bytes, set.get());
    if (sched_getaffinity(0, bytes, set.get()) != 0) continue;
    std::vector<int> cpus;
    for (int cpu = 0; cpu < capacity; ++cpu) {
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set.get())) cpus.push_back(cpu);
    }
    return cpus;
  }
  std::vector<int> cpus(std::max(1U, std::thread::hardware_concurrency()));
  for (std::size_t i = 0; i < cpus.size(); ++i) cpus[i] = static_cast<int>(i);
  return cpus;
}

void apply_restriction(Machine& machine) {
  const char* list = std::getenv("MORACLE_CPU_FEATURES");
  if (list == nullptr) return;
  std::vector<std::string> unknown;
  const CpuFeatures kept = restrict_features(machine.cpu_features, list, unknown);
  const auto note = [&machine](const std::string& text) {
    machine.os_note += (machine.os_note.empty() ? "" : "; ") + text;
  };
  if (kept != machine.cpu_features)
    note(feature_list(machine.cpu_features & ~kept) + " not used: MORACLE_CPU_FEATURES leaves it out");
  if (!unknown.empty()) note("MORACLE_CPU_FEATURES names an unknown feature");
  machine.cpu_features = kept;
}

}  // namespace

Machine probe_machine() {
  const CpuFacts cpu = probe_cpu();
  const HostLimits host = read_host_limits("/", allowed_cpus());
  Machine machine;
  machine.name = "this machine";
#if defined(__x86_64__)
  machine.arch = "x86_64";
#elif defined(__aarch64__)
  machine.arch = "aarch64";
#else
  machine.arch = "other";
#endif
  machine.cpu_features = cpu.features;
  machine.cpu_model = cpu.model;
  machine.os_note = cpu.note;
  machine.cores = host.cores;
  machine.numa_nodes = host.numa_nodes;
  machine.l2_bytes = host.l2_bytes != 0 ? host.l2_bytes : cpu.l2_bytes;
  machine.l3_bytes = host.l3_bytes != 0 ? host.l3_bytes : cpu.l3_bytes;
  machine.memory_bytes = host.memory_bytes;
  machine.little_endian = std::endian::native == std::endian::little;
  apply_restriction(machine);
  return machine;
}

}  // namespace moracle
