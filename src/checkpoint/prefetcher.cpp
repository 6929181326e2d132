#include "checkpoint/prefetcher.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/guarded.h"

namespace moracle {

namespace {

// What one request may be: Linux cuts longer ones to the read-ahead of the device, by default 128 KiB.
constexpr std::size_t kRequest = std::size_t{128} << 10;

using Bytes = std::span<const std::byte>;

std::uintptr_t end_of(Bytes bytes) {
  return reinterpret_cast<std::uintptr_t>(bytes.data()) + bytes.size();
}

// In the order of their addresses, which is that of the file; what lies less than a request apart is joined.
std::vector<Bytes> join(std::vector<Bytes> parts) {
  std::erase_if(parts, [](Bytes part) { return part.empty(); });
  std::sort(parts.begin(), parts.end(), [](Bytes a, Bytes b) { return a.data() < b.data(); });
  std::vector<Bytes> runs;
  for (const Bytes part : parts) {
    const auto begin = reinterpret_cast<std::uintptr_t>(part.data());
    if (runs.empty() || begin > end_of(runs.back()) + kRequest) {
      runs.push_back(part);
    } else if (end_of(part) > end_of(runs.back())) {
      runs.back() = {runs.back().data(), end_of(part) - reinterpret_cast<std::uintptr_t>(runs.back().data())};
    }
  }
  return runs;
}

void prefetch(Bytes bytes) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(bytes.data()) / page * page;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the address was rounded as a number
  madvise(reinterpret_cast<void*>(begin), end_of(bytes) - begin, MADV_WILLNEED);
}

}  // namespace

Prefetcher::Prefetcher(Steps steps, std::uint64_t window) : window_(window), runs_(std::move(steps)) {
  std::uint64_t end = 0;
  for (std::vector<Bytes>& step : runs_) {
    step = join(std::move(step));
    for (const Bytes run : step) end += run.size();
    ends_.push_back(end);
  }
  if (ends_.empty()) return;
  limit_ = ends_.front() + window_;
  static_cast<void>(guarded("prefetch", [this]() -> Result<> {
    thread_ = std::jthread([this] { read(); });
    return Ok{};
  }));
}

Prefetcher::~Prefetcher() {
  const std::scoped_lock lock(mutex_);
  stop_ = true;
  moved_.notify_one();
}

void Prefetcher::packed(std::size_t step) {
  const std::scoped_lock lock(mutex_);
  limit_ = ends_[std::min(step + 1, ends_.size() - 1)] + window_;
  moved_.notify_one();
}

std::uint64_t Prefetcher::prefetched() const {
  const std::scoped_lock lock(mutex_);
  return prefetched_;
}

bool Prefetcher::has_room() {
  std::unique_lock lock(mutex_);
  moved_.wait(lock, [this] { return stop_ || prefetched_ < limit_; });
  return !stop_;
}

void Prefetcher::read() {
  for (const std::vector<Bytes>& step : runs_) {
    for (Bytes rest : step) {
      while (!rest.empty() && has_room()) {
        const Bytes request = rest.first(std::min(rest.size(), kRequest));
        prefetch(request);
        rest = rest.subspan(request.size());
        const std::scoped_lock lock(mutex_);
        prefetched_ += request.size();
      }
      if (!rest.empty()) return;
    }
  }
}

}  // namespace moracle
