// How a range is shared between threads: each works on its own part in order, so that memory is read in few and long
// runs, and a thread without work steals half of what another has left.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/checked.h"
#include "base/thread_pool.h"

namespace moracle {

struct WorkRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t size() const { return end - begin; }
};

// What is left of each thread's part. A part is one word, so that what its owner takes from its front and others from
// its end cannot overlap; what was taken is in no part again.
class WorkQueues {
 public:
  WorkQueues(std::span<PerThread> parts, std::int64_t total) : parts_(parts) {
    const auto count = narrow<std::int64_t>(parts.size());
    for (std::int64_t i = 0; i < count; ++i) put(i, {total * i / count, total * (i + 1) / count});
  }

  // The front of a part: a quarter of it, but not more than most(begin). Empty: there is nothing left.
  template <class Most>
  WorkRange take(std::int64_t part, const Most& most) {
    std::atomic<std::uint64_t>& word = word_of(part);
    std::uint64_t value = word.load(std::memory_order_relaxed);
    for (;;) {
      const WorkRange left = range(value);
      if (left.size() == 0) return {};
      const std::int64_t share = std::min(std::max<std::int64_t>(left.size() / 4, 1), most(left.begin));
      const WorkRange taken{left.begin, left.begin + share};
      if (word.compare_exchange_weak(value, packed({taken.end, left.end}), std::memory_order_relaxed)) return taken;
    }
  }

  // Fills a part that is empty with the second half of the one that has most left, of at least `least` indices.
  // False: none has.
  bool refill(std::int64_t part, std::int64_t least) {
    for (;;) {
      const auto largest = std::max_element(parts_.begin(), parts_.end(), [](const auto& a, const auto& b) {
        return range(a.value.load(std::memory_order_relaxed)).size() <
               range(b.value.load(std::memory_order_relaxed)).size();
      });
      std::uint64_t value = largest->value.load(std::memory_order_relaxed);
      const WorkRange left = range(value);
      if (left.size() < least) return false;
      const std::int64_t middle = left.begin + left.size() / 2;
      if (!largest->value.compare_exchange_weak(value, packed({left.begin, middle}), std::memory_order_relaxed))
        continue;
      put(part, {middle, left.end});
      return true;
    }
  }

  // Where a part goes on; empty: nowhere.
  [[nodiscard]] std::optional<std::int64_t> front(std::int64_t part) const {
    const WorkRange left = range(parts_[static_cast<std::size_t>(part)].value.load(std::memory_order_relaxed));
    return left.size() > 0 ? std::optional(left.begin) : std::nullopt;
  }

 private:
  static constexpr std::uint64_t kLow = 0xFFFFFFFF;

  static WorkRange range(std::uint64_t word) {
    return {static_cast<std::int64_t>(word & kLow), static_cast<std::int64_t>(word >> 32U)};
  }
  static std::uint64_t packed(const WorkRange& range) {
    return static_cast<std::uint64_t>(narrow<std::uint32_t>(range.end)) << 32U | narrow<std::uint32_t>(range.begin);
  }
  std::atomic<std::uint64_t>& word_of(std::int64_t part) { return parts_[static_cast<std::size_t>(part)].value; }
  void put(std::int64_t part, const WorkRange& range) { word_of(part).store(packed(range), std::memory_order_relaxed); }

  std::span<PerThread> parts_;
};

// Calls body(begin, end, following, thread) until all of [0, total) is done. most(begin) >= 1 bounds the length of the
// range that begins there. `following` is where the thread will probably go on, so that it can be prefetched; where
// nothing more is to do, the index that it ends with.
template <class Most, class Body>
void parallel_ranges(ThreadPool& pool, std::int64_t total, const Most& most, const Body& body) {
  WorkQueues parts(pool.per_thread(), total);
  pool.parallel_for(pool.threads(), [&](std::int64_t part, int thread) {
    for (;;) {
      const WorkRange taken = parts.take(part, most);
      if (taken.size() == 0) {
        if (!parts.refill(part, 1)) return;
        continue;
      }
      std::optional<std::int64_t> following = parts.front(part);
      // One's own part ends here: what comes next is looked for now, unless its owner comes to it sooner.
      if (!following && parts.refill(part, 2)) following = parts.front(part);
      body(taken.begin, taken.end, following.value_or(taken.end - 1), thread);
    }
  });
}

}  // namespace moracle
