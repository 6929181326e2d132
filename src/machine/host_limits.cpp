#include "machine/host_limits.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>

namespace moracle {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

// First line of a small system file; empty when it is not there.
std::string line_of(const fs::path& path) {
  std::ifstream stream(path);
  std::string line;
  std::getline(stream, line);
  return line;
}

std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t value = 0;
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || stop == text.data()) return std::nullopt;
  return value;
}

// "32768K", "1M"
std::uint64_t size_in(std::string_view text) {
  const std::uint64_t value = number_in(text).value_or(0);
  if (value > (std::uint64_t{1} << 40U)) return 0;
  if (text.ends_with('K')) return value << 10U;
  if (text.ends_with('M')) return value << 20U;
  if (text.ends_with('G')) return value << 30U;
  return value;
}

// The number of a line "KEY  NUMBER ..."; 0 where there is none.
std::uint64_t number_of(const fs::path& path, std::string_view key) {
  std::ifstream stream(path);
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t digit = line.find_first_of("0123456789", key.size());
    if (digit == std::string::npos) return 0;
    return number_in(std::string_view(line).substr(digit)).value_or(0);
  }
  return 0;
}

std::uint64_t memory_info(const fs::path& root, std::string_view key) {
  return number_of(root / "proc/meminfo", key) << 10U;
}

// The process's group of each controller: "" (version 2), "cpu", "memory", ... -> "/path".
std::map<std::string, std::string> own_groups(const fs::path& root) {
  std::map<std::string, std::string> groups;
  std::ifstream stream(root / "proc/self/cgroup");
  for (std::string line; std::getline(stream, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::istringstream controllers(line.substr(first + 1, second - first - 1));
    const std::string path = line.substr(second + 1);
    if (second == first + 1) groups[""] = path;
    for (std::string name; std::getline(controllers, name, ',');) groups[name] = path;
  }
  return groups;
}

// Folders from the group up to the mount. A container may show the host's path although only the mount itself is
// visible; folders that do not exist simply hold no limit.
std::vector<fs::path> up_to_mount(const fs::path& mount, const std::string& group) {
  std::vector<fs::path> folders;
  fs::path relative = fs::path(group).relative_path().lexically_normal();
  while (!relative.empty() && relative != "." && *relative.begin() != "..") {
    folders.push_back(mount / relative);
    relative = relative.parent_path();
  }
  folders.push_back(mount);
  return folders;
}

struct GroupLimits {
  std::uint64_t memory = kUnlimited;
  std::uint64_t whole_cpus = kUnlimited;
};

// Rounded down: a thread beyond the quota is stopped for a part of every period, and all others wait for it.
void lower_cpus(GroupLimits& limits, std::uint64_t quota, std::uint64_t period) {
  if (period > 0) limits.whole_cpus = std::min(limits.whole_cpus, std::max<std::uint64_t>(1, quota / period));
}

GroupLimits group_limits(const fs::path& root) {
  GroupLimits limits;
  const auto groups = own_groups(root);
  const auto group = [&groups](const std::string& name) {
    const auto it = groups.find(name);
    return it == groups.end() ? std::string("/") : it->second;
  };
  for (const char* mount : {"sys/fs/cgroup", "sys/fs/cgroup/unified"}) {
    for (const fs::path& folder : up_to_mount(root / mount, group(""))) {
      if (const auto bytes = number_in(line_of(folder / "memory.max"))) limits.memory = std::min(limits.memory, *bytes);
      const std::string cpu = line_of(folder / "cpu.max");  // "QUOTA PERIOD", QUOTA may be "max"
      const std::size_t space = cpu.find(' ');
      if (space == std::string::npos) continue;
      const auto quota = number_in(cpu);
      const auto period = number_in(std::string_view(cpu).substr(space + 1));
      if (quota && period) lower_cpus(limits, *quota, *period);
    }
  }
  for (const fs::path& folder : up_to_mount(root / "sys/fs/cgroup/memory", group("memory"))) {
    if (const auto bytes = number_in(line_of(folder / "memory.limit_in_bytes")))
      limits.memory = std::min(limits.memory, *bytes);
  }
  for (const fs::path& folder : up_to_mount(root / "sys/fs/cgroup/cpu", group("cpu"))) {
    const auto quota = number_in(line_of(folder / "cpu.cfs_quota_us"));  // -1, no number here: unlimited
    const auto period = number_in(line_of(folder / "cpu.cfs_period_us"));
    if (quota && period) lower_cpus(limits, *quota, *period);
  }
  return limits;
}

fs::path cpu_folder(const fs::path& root, int cpu) {
  return root / "sys/devices/system/cpu" / ("cpu" + std::to_string(cpu));
}

// Hardware threads of one core name the same siblings.
int physical_cores(const fs::path& root, const std::vector<int>& cpus) {
  std::set<std::string> cores;
  int alone = 0;
  for (const int cpu : cpus) {
    const std::string siblings = line_of(cpu_folder(root, cpu) / "topology/thread_siblings_list");
    if (siblings.empty()) {
      ++alone;
    } else {
      cores.insert(siblings);
    }
  }
  return std::max(1, static_cast<int>(cores.size()) + alone);
}

void read_caches(const fs::path& root, const std::vector<int>& cpus, HostLimits& limits) {
  std::set<std::string> seen;  // "level:sharers"
  for (const int cpu : cpus) {
    for (int index = 0; index < 8; ++index) {
      const fs::path cache = cpu_folder(root, cpu) / "cache" / ("index" + std::to_string(index));
      const std::string level = line_of(cache / "level");
      if (level.empty()) break;
      const std::uint64_t size = size_in(line_of(cache / "size"));
      if (level == "2" && cpu == cpus.front()) limits.l2_bytes = size;
      if (level != "3") continue;
      std::string sharers = line_of(cache / "shared_cpu_list");
      if (sharers.empty()) sharers = std::to_string(cpu);
      if (seen.insert(sharers).second) limits.l3_bytes += size;
    }
  }
}

int nodes_with(const fs::path& root, const std::vector<int>& cpus) {
  int nodes = 0;
  const fs::path folder = root / "sys/devices/system/node";
  for (const int node : parse_cpu_list(line_of(folder / "online"))) {
    const auto held = parse_cpu_list(line_of(folder / ("node" + std::to_string(node)) / "cpulist"));
    const bool any = std::any_of(held.begin(), held.end(),
                                 [&cpus](int cpu) { return std::binary_search(cpus.begin(), cpus.end(), cpu); });
    if (any) ++nodes;
  }
  return std::max(1, nodes);
}

}  // namespace

std::uint64_t read_free_memory(const fs::path& root) {
  std::uint64_t free = memory_info(root, "MemAvailable:");
  if (free == 0) free = kUnlimited;
  const auto groups = own_groups(root);
  const auto lower = [&](const char* mount, const std::string& name, const char* limit, const char* usage,
                         const std::string& total) {
    const auto group = groups.find(name);
    for (const fs::path& folder : up_to_mount(root / mount, group == groups.end() ? "/" : group->second)) {
      const auto most = number_in(line_of(folder / limit));
      const auto used = number_in(line_of(folder / usage));
      if (!most || !used) continue;
      const fs::path stat = folder / "memory.stat";
      const std::uint64_t cached = number_of(stat, total + "inactive_file ") + number_of(stat, total + "active_file ");
      const std::uint64_t held = *used - std::min(*used, cached);
      free = std::min(free, *most - std::min(*most, held));
    }
  };
  for (const char* mount : {"sys/fs/cgroup", "sys/fs/cgroup/unified"})
    lower(mount, "", "memory.max", "memory.current", "");
  lower("sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_");
  return free == kUnlimited ? 0 : std::max<std::uint64_t>(free, 1);
}

std::vector<int> parse_cpu_list(std::string_view text) {
  constexpr std::size_t kMaxIds = 65536;
  std::vector<int> ids;
  const auto take = [&text]() -> std::optional<int> {
    int value = 0;
    const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc() || value < 0) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
    return value;
  };
  while (!text.empty()) {
    const auto first = take();
    if (!first) break;
    int last = *first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      const auto end = take();
      if (!end || *end < *first) break;
      last = *end;
    }
    for (std::int64_t id = *first; id <= last && ids.size() < kMaxIds; ++id) ids.push_back(static_cast<int>(id));
    if (!text.starts_with(',')) break;
    text.remove_prefix(1);
  }
  return ids;
}

HostLimits read_host_limits(const fs::path& root, const std::vector<int>& cpus) {
  HostLimits limits;
  const GroupLimits group = group_limits(root);
  const auto cores = static_cast<std::uint64_t>(physical_cores(root, cpus));
  limits.cores = static_cast<int>(std::min(cores, group.whole_cpus));
  limits.numa_nodes = nodes_with(root, cpus);
  const std::uint64_t physical = memory_info(root, "MemTotal:");
  limits.memory_bytes = std::min(physical == 0 ? kUnlimited : physical, group.memory);
  if (limits.memory_bytes == kUnlimited) limits.memory_bytes = 0;
  if (!cpus.empty()) read_caches(root, cpus, limits);
  return limits;
}

}  // namespace moracle
