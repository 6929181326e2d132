// How a row of panels is shared between threads: in stretches that get shorter, so that each thread reads long streams
// and all end together. Which thread takes what moves no bit of a result.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/thread_pool.h"

namespace moracle::cpu {

// Calls body(begin, end, thread) until all of [0, total) is done. A stretch is an eighth of what two threads have left,
// and so on; most(begin) >= 1 bounds the length of the one that begins there.
template <class Most, class Body>
void share_stretches(ThreadPool& pool, std::int64_t total, const Most& most, const Body& body) {
  const std::int64_t parts = 4 * static_cast<std::int64_t>(pool.threads());
  std::atomic<std::int64_t> next{0};
  pool.parallel_for(pool.threads(), [&](std::int64_t, int thread) {
    std::int64_t begin = next.load(std::memory_order_relaxed);
    while (begin < total) {
      const std::int64_t share = std::max<std::int64_t>((total - begin) / parts, 1);
      const std::int64_t end = begin + std::min(share, most(begin));
      if (!next.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
      body(begin, end, thread);
      begin = next.load(std::memory_order_relaxed);
    }
  });
}

}  // namespace moracle::cpu
