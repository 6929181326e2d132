#include "base/thread_pool.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace moracle {

namespace {

using Clock = std::chrono::steady_clock;

// Long enough to bridge the gaps between the layers of one token, short enough to leave an idle core alone. A clock
// decides, because a pause takes from 10 to 50 ns; it is looked at every so many pauses.
constexpr std::chrono::microseconds kSpinTime{150};
constexpr int kPausesALook = 32;
// Of a thread that waits for others to end their last task.
constexpr int kSpins = 2000;

constexpr std::uint64_t kOpen = 1;
constexpr std::uint64_t kWorker = 2;
constexpr std::uint64_t kJob = std::uint64_t{1} << 16U;
constexpr std::uint64_t kWorkers = kJob - kWorker;  // mask of the count

std::uint64_t job_of(std::uint64_t gate) {
  return gate / kJob;
}

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// Where the system refuses, the thread runs wherever it may.
void bind_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(cpu), &set);
  static_cast<void>(pthread_setaffinity_np(pthread_self(), sizeof set, &set));
}

}  // namespace

ThreadPool::ThreadPool(HostThreads host)
    : host_(std::move(host)),
      begun_(static_cast<std::size_t>(host_.threads)),
      per_thread_(static_cast<std::size_t>(host_.threads)),
      wanted_(host_.threads) {}

ThreadPool::ThreadPool(int threads, std::span<const int> cpus)
    : per_thread_(static_cast<std::size_t>(std::max(threads, 1))), wanted_(std::max(threads, 1)) {
  workers_.reserve(per_thread_.size() - 1);  // nothing but a start can fail from here on
  try {
    for (int thread = 1; thread < threads; ++thread) {
      const int cpu = static_cast<std::size_t>(thread) < cpus.size() ? cpus[static_cast<std::size_t>(thread)] : -1;
      workers_.emplace_back([this, thread, cpu] {
        if (cpu >= 0) bind_to(cpu);
        worker(thread);
      });
    }
  } catch (const std::system_error& error) {
    refusal_ = error.code();
  } catch (const std::bad_alloc&) {
    refusal_ = std::make_error_code(std::errc::not_enough_memory);
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
}

std::string ThreadPool::shortfall() const {
  if (threads() == wanted_) return "";
  return fmt::format(
      "wanted {} threads, found {} ({}); raise the limit (ulimit -u, TasksMax, pids.max) or ask for fewer (--threads)",
      wanted_, threads(), refusal_.message());
}

void ThreadPool::end_job_with(std::exception_ptr failure) {
  next_.store(job_.count, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::move(failure);
}

void ThreadPool::work_on(const Job& job, int thread) noexcept {
  try {
    for (std::int64_t index = next_.fetch_add(1, std::memory_order_relaxed); index < job.count;
         index = next_.fetch_add(1, std::memory_order_relaxed)) {
      (*job.body)(index, thread);
    }
  } catch (...) {
    end_job_with(std::current_exception());
  }
}

bool ThreadPool::join(std::uint64_t& seen, int thread) {
  std::uint64_t gate = gate_.load(std::memory_order_acquire);
  do {
    if ((gate & kOpen) == 0 || job_of(gate) == seen) return false;
  } while (!gate_.compare_exchange_weak(gate, gate + kWorker, std::memory_order_acquire));
  seen = job_of(gate);
  work_on(job_, thread);
  gate_.fetch_sub(kWorker, std::memory_order_release);
  return true;
}

void ThreadPool::worker(int thread) {
  std::uint64_t seen = 0;
  for (;;) {
    auto until = Clock::now() + kSpinTime;
    for (int pause = 1; !stop_; ++pause) {
      if (join(seen, thread)) {
        until = Clock::now() + kSpinTime;
        pause = 0;
      } else if (pause % kPausesALook == 0 && Clock::now() > until) {
        break;
      }
      relax();
    }
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] {
      const std::uint64_t gate = gate_.load(std::memory_order_acquire);
      return stop_ || ((gate & kOpen) != 0 && job_of(gate) != seen);
    });
    if (stop_) return;
  }
}

void ThreadPool::run_on_host(std::int64_t count, FunctionRef<void(std::int64_t, int)> body) {
  job_ = Job{&body, count};
  next_.store(0, std::memory_order_relaxed);
  for (PerThread& task : begun_) task.value.store(0, std::memory_order_relaxed);
  const std::int64_t tasks = std::min<std::int64_t>(count, host_.threads);
  std::atomic<int> inside{0};
  host_.run(tasks, [&](std::int64_t task) {
    if (task < 0 || task >= tasks || begun_[static_cast<std::size_t>(task)].value.exchange(1) != 0) return;
    inside.fetch_add(1);
    work_on(job_, static_cast<int>(task));
    inside.fetch_sub(1);
  });
  while (inside.load() != 0) std::this_thread::yield();
  work_on(job_, 0);  // of a host that has begun no task: all of it
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ThreadPool::parallel_for(std::int64_t count, FunctionRef<void(std::int64_t, int)> body) {
  if (threads() == 1 || count <= 1) {
    for (std::int64_t index = 0; index < count; ++index) body(index, 0);
    return;
  }
  if (host_.run) {
    run_on_host(count, body);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    job_ = Job{&body, count};
    next_.store(0, std::memory_order_relaxed);
    gate_.store((job_of(gate_.load(std::memory_order_relaxed)) + 1) * kJob | kOpen, std::memory_order_release);
  }
  wake_.notify_all();
  work_on(job_, 0);
  gate_.fetch_and(~kOpen, std::memory_order_acq_rel);
  // Those who take part end within a task of each other; when cores are oversubscribed the one awaited may need this
  // one.
  for (int spin = 0; (gate_.load(std::memory_order_acquire) & kWorkers) != 0; ++spin) {
    if (spin < kSpins) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace moracle
