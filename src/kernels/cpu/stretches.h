// How a row of panels is shared between threads: in stretches that get shorter, so that each thread reads long streams
// and all end together. Which thread takes what moves no bit of a result.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/thread_pool.h"

namespace moracle::cpu {

// Calls body(begin, end, after, thread) until all of [0, total) is done. A stretch is an eighth of what two threads
// have left, and so on; most(begin) >= 1 bounds the length of the one that begins there. `after` is where the thread's
// next stretch begins, so that memory can be asked for it: certain while there is much left, then a guess; not below
// total: there is none.
template <class Most, class Body>
void share_stretches(ThreadPool& pool, std::int64_t total, const Most& most, const Body& body) {
  const std::int64_t parts = 4 * static_cast<std::int64_t>(pool.threads());
  std::atomic<std::int64_t> next{0};
  struct Stretch {
    std::int64_t begin;
    std::int64_t end;
  };
  const auto take = [&] {
    std::int64_t begin = next.load(std::memory_order_relaxed);
    std::int64_t end = begin;
    do {
      if (begin >= total) return Stretch{total, total};
      const std::int64_t share = std::max<std::int64_t>((total - begin) / parts, 1);
      end = begin + std::min(share, most(begin));
    } while (!next.compare_exchange_weak(begin, end, std::memory_order_relaxed));
    return Stretch{begin, end};
  };
  pool.parallel_for(pool.threads(), [&](std::int64_t, int thread) {
    for (Stretch stretch = take(); stretch.begin < total;) {
      // The last ones are taken one by one, so that all threads end together.
      const bool early = total - next.load(std::memory_order_relaxed) > parts;
      Stretch after = early ? take() : Stretch{next.load(std::memory_order_relaxed), 0};
      body(stretch.begin, stretch.end, after.begin, thread);
      stretch = early ? after : take();
    }
  });
}

}  // namespace moracle::cpu
