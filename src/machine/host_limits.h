// What the operating system lets this process use, read from /proc and /sys below a root that tests replace.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace moracle {

struct HostLimits {
  int cores = 1;                   // physical cores among `cpus`, lowered to the cgroup's whole CPUs (at least 1)
  int numa_nodes = 1;              // that hold one of `cpus`
  std::uint64_t memory_bytes = 0;  // min(physical, cgroup limit); 0 when neither can be read
  std::uint64_t l2_bytes = 0;      // of the first of `cpus`; 0 when /sys does not say
  std::uint64_t l3_bytes = 0;      // all instances that `cpus` reach, summed
};

// `cpus`: ids the process may run on, ascending. Both cgroup versions are understood, and the tightest limit on the way
// from the process's group up to the root holds.
[[nodiscard]] HostLimits read_host_limits(const std::filesystem::path& root, const std::vector<int>& cpus);

// What the system would give a process now, page cache given up: what is available, and what the process's groups leave
// of their limits, at least 1. 0: it does not say.
[[nodiscard]] std::uint64_t read_free_memory(const std::filesystem::path& root);

// "0-3,8,10-11" -> {0,1,2,3,8,10,11}. Stops at the first thing it does not understand, and at 65536 ids.
[[nodiscard]] std::vector<int> parse_cpu_list(std::string_view text);

}  // namespace moracle
