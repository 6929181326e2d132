#include "slots/read_rate.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>

#include "base/memory.h"
#include "base/random/random.h"
#include "slots/disk_reader.h"
#include "slots/expert_pool.h"

namespace moracle {

namespace {

// A file of headers and holes is no disk to be measured.
bool has_holes(const Checkpoint& checkpoint) {
  std::set<std::string> files;
  for (const auto& [name, tensor] : checkpoint.tensors()) files.insert(tensor.file);
  return std::ranges::any_of(files, [](const std::string& file) {
    constexpr std::int64_t kUnit = 512;  // of st_blocks
    struct stat info{};
    return stat(file.c_str(), &info) != 0 || std::int64_t{info.st_blocks} * kUnit < info.st_size / 10 * 9;
  });
}

}  // namespace

std::optional<double> measure_read_rate(const Checkpoint& checkpoint, std::span<const CanonicalExperts::Expert> experts,
                                        std::chrono::milliseconds time) {
  if (experts.empty() || has_holes(checkpoint)) return std::nullopt;
  std::array<ReadJob, PoolSize::kReads> jobs;
  std::array<PageBuffer, PoolSize::kReads> rooms;
  Random random(1);
  using Clock = std::chrono::steady_clock;
  DiskReader reader(checkpoint, DiskReader::kThreads);
  const auto begin = Clock::now();
  while (Clock::now() - begin < time) {
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      jobs[i].extents = ExpertExtents(experts[random.below(static_cast<std::uint32_t>(experts.size()))], checkpoint);
      if (!jobs[i].extents.complete()) return std::nullopt;
      if (rooms[i].size() < jobs[i].extents.room()) {
        auto room = PageBuffer::allocate(jobs[i].extents.room());
        if (!room.ok()) return std::nullopt;
        rooms[i] = std::move(*room);
      }
      jobs[i].room = {rooms[i].data(), jobs[i].extents.room()};
    }
    for (ReadJob& job : jobs) reader.submit(job);
    reader.wait([&] { return std::ranges::all_of(jobs, &ReadJob::done); });
    for (ReadJob& job : jobs) {
      if (!job.error->take().ok()) return std::nullopt;
    }
  }
  return static_cast<double>(reader.bytes()) / std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace moracle
