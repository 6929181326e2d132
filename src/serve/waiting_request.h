// A request until its turn to be prepared.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include "serve/http/http.h"

namespace moracle::serve {

// The preparing thread takes the request, or a client that leaves before drops it with its body. Callable from any
// thread.
class WaitingRequest {
 public:
  explicit WaitingRequest(HttpRequest&& request) : request_(std::move(request)) {}

  // Once. Nothing: the client has left.
  [[nodiscard]] std::optional<HttpRequest> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(request_, std::nullopt);
  }
  void leave() {
    left_ = true;
    static_cast<void>(take());
  }
  [[nodiscard]] bool left() const { return left_; }

 private:
  std::mutex mutex_;
  std::optional<HttpRequest> request_;
  std::atomic<bool> left_{false};
};

}  // namespace moracle::serve
