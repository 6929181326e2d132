// The server's handler of HTTP: who may ask, which endpoint answers, and the state that all share.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "serve/http/http.h"
#include "serve/service_state.h"

namespace moracle::serve {

class Service final : public HttpHandler {
 public:
  Service(ServiceOptions options, AccessRules rules, EventLog& log);
  ~Service() override;

  // Before the server starts; it outlives the service's last request.
  void attach(HttpServer& server) { state_.server = &server; }

  // Callable from any thread.
  void set_progress(double done, double total) { state_.progress = total > 0 ? done / total : 0; }
  void set_ready(const ServedModel& model) { state_.set_ready(model); }
  // Runs `work` on the thread that prepares requests, in its turn.
  void post_preparing(std::function<void()> work) { state_.worker.post(std::move(work)); }
  // Ends the threads that prepare and compile. What they had not begun is dropped.
  void stop_preparing() {
    state_.worker.stop();
    state_.holder.stop();
  }

  // On the I/O thread.
  void set_draining();
  void cancel_all();
  std::optional<HttpReply> refuse(HttpRequest& request) override;
  void handle(HttpRequest&& request, std::shared_ptr<Exchange> exchange) override;
  HttpReply fault(const HttpRequest& request, const std::string& code, const std::string& wanted,
                  const std::string& found) override;
  void tick() override;

  // Whether a reply is under way.
  [[nodiscard]] bool busy() const { return state_.open.load() + state_.preparing.load() > 0; }

 private:
  // Why its route does not take the request.
  [[nodiscard]] std::optional<Error> misfit(const HttpRequest& request);
  [[nodiscard]] HttpReply preflight_reply(const HttpRequest& request) const;

  ServiceState state_;
  std::uint64_t ticks_ = 0;
};

}  // namespace moracle::serve
