#include "base/thread_pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace moracle {

namespace {

// Long enough to bridge the gaps between the layers of one token, short enough to leave an idle core alone.
constexpr int kSpins = 20000;

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  for (int thread = 1; thread < threads; ++thread) workers_.emplace_back([this, thread] { worker(thread); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    generation_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  for (auto& thread : workers_) thread.join();
}

void ThreadPool::work_on(const Job& job, int thread) {
  for (std::int64_t index = next_.fetch_add(1, std::memory_order_relaxed); index < job.count;
       index = next_.fetch_add(1, std::memory_order_relaxed)) {
    (*job.body)(index, thread);
  }
}

void ThreadPool::worker(int thread) {
  std::uint64_t seen = 0;
  for (;;) {
    for (int spin = 0; spin < kSpins && generation_.load(std::memory_order_acquire) == seen; ++spin) relax();
    if (generation_.load(std::memory_order_acquire) == seen) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return generation_.load(std::memory_order_acquire) != seen; });
    }
    seen = generation_.load(std::memory_order_acquire);
    if (stop_) return;
    work_on(job_, thread);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

void ThreadPool::parallel_for(std::int64_t count, FunctionRef<void(std::int64_t, int)> body) {
  if (workers_.empty() || count <= 1) {
    for (std::int64_t index = 0; index < count; ++index) body(index, 0);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    job_ = Job{&body, count};
    next_.store(0, std::memory_order_relaxed);
    running_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  work_on(job_, 0);
  // Workers end within a task of each other; when cores are oversubscribed the one awaited may need this core.
  for (int spin = 0; running_.load(std::memory_order_acquire) != 0; ++spin) {
    if (spin < kSpins) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace moracle
