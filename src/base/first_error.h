// Collects the errors of parallel work and keeps the one of the lowest index, so that the report does not depend on
// which thread was faster.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "base/result.h"

namespace moracle {

class FirstError {
 public:
  void keep(std::int64_t index, Result<> result) {
    if (result.ok()) return;
    const std::lock_guard lock(mutex_);
    failed_.store(true, std::memory_order_relaxed);
    if (!error_ || index < index_) {
      index_ = index;
      error_ = std::move(result).error();
    }
  }
  // Lets work that has not begun stop early.
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_relaxed); }
  [[nodiscard]] Result<> take() {
    const std::lock_guard lock(mutex_);
    if (error_) return std::move(*error_);
    return Ok{};
  }

 private:
  std::mutex mutex_;
  std::atomic<bool> failed_{false};
  std::int64_t index_ = 0;
  std::optional<Error> error_;
};

}  // namespace moracle
