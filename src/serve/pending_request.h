// A request until the worker's turn to prepare it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/json.h"
#include "base/result.h"
#include "serve/api/body.h"
#include "serve/http/http.h"
#include "serve/service_state.h"

namespace moracle::serve {

// The worker accepts the request, or a client that disconnects before drops it with its body. Callable from any thread.
class PendingRequest {
 public:
  explicit PendingRequest(HttpRequest&& request) : request_(std::move(request)) {}

  // Once. Nothing: the client has disconnected.
  [[nodiscard]] std::optional<HttpRequest> accept() {
    const std::lock_guard lock(mutex_);
    return std::exchange(request_, std::nullopt);
  }
  void disconnect() {
    disconnected_ = true;
    static_cast<void>(accept());
  }
  [[nodiscard]] bool disconnected() const { return disconnected_; }

 private:
  std::mutex mutex_;
  std::optional<HttpRequest> request_;
  std::atomic<bool> disconnected_{false};
};

// The request, which the exchange drops where its client disconnects.
[[nodiscard]] std::shared_ptr<PendingRequest> enqueue(ServiceState& state, HttpRequest&& request, Exchange& exchange);
// The request alone: its body's memory is free.
[[nodiscard]] std::shared_ptr<HttpRequest> without_body(HttpRequest&& request);

// Answers with what `work` makes of the body on the worker, in the request's turn. `doing` names the work in errors.
void answer_on_worker(ServiceState& state, HttpRequest&& request, std::shared_ptr<Exchange> exchange, const char* doing,
                      std::function<Result<Json>(RequestBody body)> work);

}  // namespace moracle::serve
