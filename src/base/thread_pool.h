// A fixed set of worker threads that run index ranges.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/generic/function_ref.h"

namespace moracle {

// One thread's value among those of all threads, in a cache line of its own.
struct alignas(64) PerThread {
  std::atomic<std::uint64_t> value{0};
};

// Threads of a host program, which run a pool's jobs in place of workers.
struct HostThreads {
  int threads = 1;
  // Calls task(i) once for each i in [0, count), count <= threads, on any threads; returns when all have returned.
  // Calls that it leaves out, or makes twice, cost time and no result.
  std::function<void(std::int64_t count, FunctionRef<void(std::int64_t)> task)> run{};
};

// `threads` includes the calling one: a pool of 1 starts no thread. Workers spin shortly for the next job, then park.
// One job at a time: parallel_for is not reentrant and is called from one thread.
//
// Where the system starts fewer threads than asked for, the pool works with those it got: see shortfall().
//
// Nobody waits for a worker that has not begun: on a machine whose cores are busy otherwise, a job is done as soon as
// the threads that took part in it are, and the caller alone can do all of it.
class ThreadPool {
 public:
  // Worker i, from 1 on, is bound to cpus[i] where there is one; the calling thread stays where it is.
  explicit ThreadPool(int threads, std::span<const int> cpus = {});
  explicit ThreadPool(HostThreads host);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int threads() const { return host_.run ? host_.threads : static_cast<int>(workers_.size()) + 1; }
  // A warning that names the threads asked for, those there are, why, and what to do; empty where all were started.
  [[nodiscard]] std::string shortfall() const;

  // Calls body(index, thread) once for each index in [0, count), spread dynamically; returns when all are done.
  // Which thread runs which index is not fixed, so bodies write to places that depend on the index alone.
  // What a body throws (memory that runs out) ends the job: no further index is handed out, every thread leaves it, and
  // the first exception is thrown here. The pool can be used again.
  void parallel_for(std::int64_t count, FunctionRef<void(std::int64_t index, int thread)> body);

  // [threads()], for what the bodies of a job share among each other. Theirs to set before it, and to use.
  [[nodiscard]] std::span<PerThread> per_thread() {
    return std::span(per_thread_).first(static_cast<std::size_t>(threads()));
  }

 private:
  struct Job {
    FunctionRef<void(std::int64_t, int)>* body = nullptr;
    std::int64_t count = 0;
  };
  void worker(int thread);
  // Takes part in a job that is open and newer than `seen`; returns whether there was one.
  bool join(std::uint64_t& seen, int thread);
  void work_on(const Job& job, int thread) noexcept;
  void run_on_host(std::int64_t count, FunctionRef<void(std::int64_t, int)> body);
  void end_job_with(std::exception_ptr failure);

  HostThreads host_{};            // `run` is empty: workers
  std::vector<PerThread> begun_;  // of a host's tasks
  std::vector<PerThread> per_thread_;
  int wanted_ = 1;
  std::error_code refusal_;  // why there are fewer
  std::mutex mutex_;
  std::condition_variable wake_;
  Job job_;                     // written while no worker takes part
  std::exception_ptr failure_;  // of the job; under the mutex while workers take part
  std::atomic<std::int64_t> next_{0};
  // Bit 0: a job is open. Bits 1 to 15: workers that take part in it. From bit 16 on: the number of the job.
  std::atomic<std::uint64_t> gate_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::jthread> workers_;  // last: they use the rest until they have ended
};

}  // namespace moracle
