// A fixed set of worker threads that run index ranges.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace moracle {

// One thread's word among those of all threads, in a line of its own.
struct alignas(64) ThreadWord {
  std::atomic<std::uint64_t> value{0};
};

// `threads` includes the calling one: a pool of 1 starts no thread. Workers spin shortly for the next job, then park.
// One job at a time: parallel_for is not reentrant and is called from one thread. Jobs must not throw.
//
// Nobody waits for a worker that has not begun: on a machine whose cores are busy otherwise, a job is done as soon as
// the threads that took part in it are, and the caller alone can do all of it.
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

  // [threads()], for what the bodies of a job share among each other. Theirs to set before it, and to use.
  [[nodiscard]] std::span<ThreadWord> words() { return words_; }

 private:
  struct Job {
    FunctionRef<void(std::int64_t, int)>* body = nullptr;
    std::int64_t count = 0;
  };
  void worker(int thread);
  // Takes part in a job that is open and newer than `seen`; returns whether there was one.
  bool join(std::uint64_t& seen, int thread);
  void work_on(const Job& job, int thread);

  std::vector<ThreadWord> words_;
  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  Job job_;  // written while no worker takes part
  std::atomic<std::int64_t> next_{0};
  // Bit 0: a job is open. Bits 1 to 15: workers that take part in it. From bit 16 on: the number of the job.
  std::atomic<std::uint64_t> gate_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace moracle
