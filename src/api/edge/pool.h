// The threads that layers of the C interface run on, with the workspace that they share.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "api/edge/handles.h"
#include "api/edge/ticket_lock.h"
#include "base/memory.h"
#include "base/result.h"
#include "base/thread_pool.h"

namespace moracle::api {

class Pool {
 public:
  static constexpr Kind kKind = Kind::pool;
  explicit Pool(int threads, std::span<const int> cpus = {}) : threads_(threads, cpus) {}
  explicit Pool(HostThreads host) : threads_(std::move(host)) {}

  [[nodiscard]] TicketLock& lock() { return lock_; }  // taken for as long as the threads or the workspace are used
  [[nodiscard]] ThreadPool& threads() { return threads_; }
  // Errors: "memory.allocate".
  Result<std::span<std::byte>> workspace(std::size_t bytes);

 private:
  TicketLock lock_{"pool", "the executor's parallel_for"};
  ThreadPool threads_;
  PageBuffer workspace_;
};

}  // namespace moracle::api
