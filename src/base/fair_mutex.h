// A mutex that callers get in the order in which they asked: one that takes it again and again lets others between.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace moracle {

class FairMutex {
 public:
  void lock() {
    std::unique_lock inner(inner_);
    const std::uint64_t mine = next_++;
    turn_.wait(inner, [&] { return serving_ == mine; });
  }
  void unlock() {
    const std::lock_guard inner(inner_);
    ++serving_;
    turn_.notify_all();
  }

 private:
  std::mutex inner_;
  std::condition_variable turn_;
  std::uint64_t next_ = 0;
  std::uint64_t serving_ = 0;
};

}  // namespace moracle
