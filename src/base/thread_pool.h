// A fixed set of worker threads that run index ranges.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace moracle {

// `threads` includes the calling one: a pool of 1 starts no thread. Workers spin shortly for the next job, then park.
// One job at a time: parallel_for is not reentrant and is called from one thread. Jobs must not throw.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(index, thread) once for each index in [0, count), spread dynamically; returns when all are done.
  // Which thread runs which index is not fixed, so bodies write to places that depend on the index alone.
  void parallel_for(std::int64_t count, FunctionRef<void(std::int64_t index, int thread)> body);

 private:
  struct Job {
    FunctionRef<void(std::int64_t, int)>* body = nullptr;
    std::int64_t count = 0;
  };
  void worker(int thread);
  void work_on(const Job& job, int thread);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  Job job_;
  std::atomic<std::int64_t> next_{0};
  std::atomic<std::uint64_t> generation_{0};
  std::atomic<int> running_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace moracle
