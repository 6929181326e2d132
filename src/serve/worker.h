// One thread that does what must not hold up the I/O thread: templates, tokenizing, parsing, grammars.
#pragma once

#include <sys/resource.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "base/guarded.h"

namespace moracle::serve {

class Worker {
 public:
  // `niceness`: by which other threads go before this one, as nice(2) has it.
  explicit Worker(int niceness = 0) : niceness_(niceness), thread_([this] { run(); }) {}
  ~Worker() { stop(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // In order. After stop() it is dropped. What throws ends itself alone.
  void post(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      queue_.push_back(std::move(work));
    }
    wake_.notify_one();
  }
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      queue_.clear();
    }
    wake_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    // Of this thread alone, as Linux has it; one that may not is no worse than it was.
    if (niceness_ > 0) static_cast<void>(setpriority(PRIO_PROCESS, 0, niceness_));
    for (;;) {
      std::function<void()> work;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
        if (stopping_) return;
        work = std::move(queue_.front());
        queue_.pop_front();
      }
      // A connection notices that its request has no answer.
      static_cast<void>(guarded("prepare a request", [&]() -> Result<> {
        work();
        return Ok{};
      }));
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  int niceness_;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace moracle::serve
