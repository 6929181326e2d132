#include "machine/host_limits.h"

#include <gtest/gtest.h>

#include <string>

#include "support/temporary_folder.h"

namespace moracle {
namespace {

namespace fs = std::filesystem;

// A made-up /proc and /sys.
class HostLimitsTest : public testing::Test {
 protected:
  void SetUp() override { put("proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 5 kB\n"); }

  void put(const fs::path& path, const std::string& text) { temporary_.write(path, text + "\n"); }
  void put_cpu(int cpu, const std::string& siblings, const std::string& l3_sharers) {
    const fs::path folder = "sys/devices/system/cpu/cpu" + std::to_string(cpu);
    put(folder / "topology/thread_siblings_list", siblings);
    put(folder / "cache/index0/level", "1");
    put(folder / "cache/index0/size", "32K");
    put(folder / "cache/index1/level", "2");
    put(folder / "cache/index1/size", "1024K");
    put(folder / "cache/index2/level", "3");
    put(folder / "cache/index2/size", "32M");
    put(folder / "cache/index2/shared_cpu_list", l3_sharers);
  }

  test::TemporaryFolder temporary_;
  const fs::path& root_ = temporary_.path();
};

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;

TEST_F(HostLimitsTest, NothingToReadIsNotAnError) {
  const HostLimits limits = read_host_limits(root_ / "nowhere", {0, 1});
  EXPECT_EQ(limits.cores, 2);
  EXPECT_EQ(limits.numa_nodes, 1);
  EXPECT_EQ(limits.memory_bytes, 0U);
  EXPECT_EQ(read_host_limits(root_, {}).cores, 1);
}

TEST_F(HostLimitsTest, FreeMemoryIsWhatTheTightestGroupLeaves) {
  EXPECT_EQ(read_free_memory(root_ / "nowhere"), 0U);
  put("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB");
  EXPECT_EQ(read_free_memory(root_), 8 * kGiB);
  put("proc/self/cgroup", "4:memory:/box/inner\n0::/slice");
  const fs::path one = "sys/fs/cgroup/memory/box";
  put(one / "memory.limit_in_bytes", std::to_string(6 * kGiB));
  put(one / "memory.usage_in_bytes", std::to_string(3 * kGiB));
  put(one / "memory.stat", "cache 9\ninactive_file 7\ntotal_inactive_file " + std::to_string(kGiB) +
                               "\ntotal_active_file " + std::to_string(kGiB));
  EXPECT_EQ(read_free_memory(root_), 5 * kGiB);
  const fs::path two = "sys/fs/cgroup/slice";
  put(two / "memory.max", "max");
  put(two / "memory.current", std::to_string(kGiB));
  EXPECT_EQ(read_free_memory(root_), 5 * kGiB);
  put(two / "memory.max", std::to_string(4 * kGiB));
  put(two / "memory.stat", "anon 1\ninactive_file 0\nactive_file " + std::to_string(kGiB / 2));
  EXPECT_EQ(read_free_memory(root_), 4 * kGiB - kGiB / 2);
  put(two / "memory.current", std::to_string(9 * kGiB));
  EXPECT_EQ(read_free_memory(root_), 1U) << "known, and none";
}

TEST_F(HostLimitsTest, ThreadsOfOneCoreCountOnce) {
  put_cpu(0, "0,2", "0-3");
  put_cpu(1, "1,3", "0-3");
  put_cpu(2, "0,2", "0-3");
  put_cpu(3, "1,3", "0-3");
  const HostLimits all = read_host_limits(root_, {0, 1, 2, 3});
  EXPECT_EQ(all.cores, 2);
  EXPECT_EQ(all.l2_bytes, std::uint64_t{1} << 20U);
  EXPECT_EQ(all.l3_bytes, std::uint64_t{32} << 20U);
  EXPECT_EQ(read_host_limits(root_, {0, 2}).cores, 1);
}

TEST_F(HostLimitsTest, CachesAreSummedOverInstances) {
  put_cpu(0, "0", "0");
  put_cpu(1, "1", "1");
  EXPECT_EQ(read_host_limits(root_, {0, 1}).l3_bytes, std::uint64_t{64} << 20U);
  EXPECT_EQ(read_host_limits(root_, {1}).l3_bytes, std::uint64_t{32} << 20U);
}

TEST_F(HostLimitsTest, SecondCgroupVersionTightestOnTheWayUp) {
  put("proc/self/cgroup", "0::/a/b");
  put("sys/fs/cgroup/a/b/memory.max", "max");
  put("sys/fs/cgroup/a/memory.max", std::to_string(2 * kGiB));
  put("sys/fs/cgroup/a/b/cpu.max", "350000 100000");
  put("sys/fs/cgroup/a/cpu.max", "max 100000");
  const HostLimits limits = read_host_limits(root_, {0, 1, 2, 3, 4, 5});
  EXPECT_EQ(limits.memory_bytes, 2 * kGiB);
  EXPECT_EQ(limits.cores, 3);
}

TEST_F(HostLimitsTest, LessThanOneCpuIsOne) {
  put("proc/self/cgroup", "0::/");
  put("sys/fs/cgroup/cpu.max", "50000 100000");
  EXPECT_EQ(read_host_limits(root_, {0, 1}).cores, 1);
}

TEST_F(HostLimitsTest, FirstCgroupVersion) {
  put("proc/self/cgroup", "4:memory:/job\n3:cpu,cpuacct:/job");
  put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", std::to_string(kGiB));
  put("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "200000");
  put("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000");
  const HostLimits limits = read_host_limits(root_, {0, 1, 2});
  EXPECT_EQ(limits.memory_bytes, kGiB);
  EXPECT_EQ(limits.cores, 2);
  put("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(read_host_limits(root_, {0, 1, 2}).cores, 3);
}

TEST_F(HostLimitsTest, PathOfTheHostInsideAContainer) {
  put("proc/self/cgroup", "0::/../../escape/kubepods/pod");
  put("sys/fs/cgroup/memory.max", std::to_string(3 * kGiB));
  EXPECT_EQ(read_host_limits(root_, {0}).memory_bytes, 3 * kGiB);
}

TEST_F(HostLimitsTest, ALimitAbovePhysicalMemoryIsNoLimit) {
  put("proc/self/cgroup", "0::/");
  put("sys/fs/cgroup/memory.max", "9223372036854771712");
  EXPECT_EQ(read_host_limits(root_, {0}).memory_bytes, 16 * kGiB);
}

TEST_F(HostLimitsTest, GarbageIsIgnored) {
  put("proc/self/cgroup", "nonsense\n::\n0::");
  put("sys/fs/cgroup/memory.max", "lots");
  put("sys/fs/cgroup/cpu.max", "100000 0");
  put("sys/devices/system/node/online", "0-99999999999");
  put("sys/devices/system/cpu/cpu0/cache/index0/level", "3");
  put("sys/devices/system/cpu/cpu0/cache/index0/size", "99999999999999999999K");
  const HostLimits limits = read_host_limits(root_, {0});
  EXPECT_EQ(limits.memory_bytes, 16 * kGiB);
  EXPECT_EQ(limits.cores, 1);
  EXPECT_EQ(limits.numa_nodes, 1);
  EXPECT_EQ(limits.l3_bytes, 0U);
}

TEST_F(HostLimitsTest, NodesThatHoldAUsableCpu) {
  put("sys/devices/system/node/online", "0-2");
  put("sys/devices/system/node/node0/cpulist", "0-1");
  put("sys/devices/system/node/node1/cpulist", "2-3");
  put("sys/devices/system/node/node2/cpulist", "");
  EXPECT_EQ(read_host_limits(root_, {0, 3}).numa_nodes, 2);
  EXPECT_EQ(read_host_limits(root_, {2, 3}).numa_nodes, 1);
}

TEST(CpuList, Forms) {
  EXPECT_EQ(parse_cpu_list("0-3,8,10-11"), (std::vector<int>{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(parse_cpu_list("5"), std::vector<int>{5});
  EXPECT_TRUE(parse_cpu_list("").empty());
  EXPECT_TRUE(parse_cpu_list("x").empty());
  EXPECT_TRUE(parse_cpu_list("-1").empty());
  EXPECT_EQ(parse_cpu_list("1,3-2,7"), std::vector<int>{1});
  EXPECT_EQ(parse_cpu_list("0-2147483647").size(), 65536U);
}

}  // namespace
}  // namespace moracle
