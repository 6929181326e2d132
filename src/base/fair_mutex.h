// A mutex that callers get in the order in which they asked: one that takes it again and again lets others between.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace moracle {

class FairMutex {
 public:
  void lock() {
    std::unique_lock inner(inner_);
    const std::uint64_t mine = next_++;
    turn_.wait(inner, [&] { return serving_ == mine; });
    holder_ = std::this_thread::get_id();
  }
  void unlock() {
    const std::lock_guard inner(inner_);
    holder_ = std::thread::id();
    ++serving_;
    turn_.notify_all();
  }
  // Whether this thread holds it, so that to lock it again would wait for itself.
  [[nodiscard]] bool held_here() const { return holder_ == std::this_thread::get_id(); }

 private:
  std::mutex inner_;
  std::condition_variable turn_;
  std::uint64_t next_ = 0;
  std::uint64_t serving_ = 0;
  std::atomic<std::thread::id> holder_{};
};

}  // namespace moracle
