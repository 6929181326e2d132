// The endpoints: what each answers, and the state of the server that they tell.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "serve/api/prepare.h"
#include "serve/event_log.h"
#include "serve/http/access.h"
#include "serve/http/http_server.h"
#include "serve/metrics.h"
#include "serve/routing_board.h"
#include "serve/token_engine.h"
#include "serve/waiting_request.h"
#include "serve/worker.h"

namespace moracle::serve {

class OpenReply;

// Names for a header's value: what is no letter, digit, '_', '-' or '.' becomes '?'; at most 1 KiB.
[[nodiscard]] std::string header_list(const std::vector<std::string>& names);

struct ServiceOptions {
  std::vector<std::string> names{};  // of the model; at least one
  bool any_model = false;            // requests may name any
  bool strict = false;               // unknown fields are refused
  bool log_prompts = false;
  bool expert_metrics = false;  // /metrics has the tokens of each expert, as of about a second ago
  double stall_s = 60;
  std::string version{};
  std::int64_t created = 0;  // seconds since 1970
};

// What is there once the model is loaded.
struct ServedModel {
  const ModelText* text = nullptr;
  TokenEngine* engine = nullptr;
  std::int64_t context = 0;
  std::int64_t max_queue = 0;  // replies that may wait
  std::int64_t layers = 0, experts = 0;
  std::string fingerprint;
  bool batch_invariant = false;
  Json decision{};                                              // `explain --json`
  std::vector<std::pair<std::string, std::string>> backends{};  // by layer kind
};

class Service final : public HttpHandler {
 public:
  Service(ServiceOptions options, AccessRules rules, EventLog& log);
  ~Service() override;

  // Before the server starts; it outlives the service's last request.
  void attach(HttpServer& server) { server_ = &server; }

  // Callable from any thread.
  void set_progress(double done, double total);
  void set_ready(const ServedModel& model);
  // Runs `work` on the thread that prepares requests, in its turn.
  void post_preparing(std::function<void()> work) { worker_.post(std::move(work)); }
  // Ends that thread. What it had not begun is dropped.
  void stop_preparing() { worker_.stop(); }

  // On the I/O thread.
  void set_draining();
  void cancel_all();
  std::optional<HttpReply> refuse(HttpRequest& request) override;
  void handle(HttpRequest&& request, std::shared_ptr<Exchange> exchange) override;
  HttpReply fault(const HttpRequest& request, const std::string& code, const std::string& wanted,
                  const std::string& found) override;
  void tick() override;

  // Whether a reply is under way.
  [[nodiscard]] bool busy() const { return open_.load() + preparing_.load() > 0; }

 private:
  friend class OpenReply;
  struct Route;

  static std::span<const Route> routes();
  [[nodiscard]] const Route* find_route(const HttpRequest& request) const;

  void answer(const HttpRequest& request, Exchange& exchange, HttpReply reply);
  // Of an answer in pieces, which begins.
  HeaderList stream_headers(const HttpRequest& request);
  void told(const HttpRequest& request, int status, HeaderList& headers);
  HttpReply reply_of(const Error& error);
  [[nodiscard]] Result<> check_model(const std::string& name) const;
  [[nodiscard]] int retry_after() const;

  HttpReply health(const HttpRequest& request);
  HttpReply models(const HttpRequest& request);
  HttpReply version(const HttpRequest& request);
  HttpReply metrics(const HttpRequest& request);
  HttpReply openapi(const HttpRequest& request);
  HttpReply status(const HttpRequest& request);
  HttpReply decision(const HttpRequest& request);
  HttpReply tokenizer_info(const HttpRequest& request);
  HttpReply page(const HttpRequest& request);
  void watch_routing(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void tell_routing();
  std::shared_ptr<WaitingRequest> await_turn(HttpRequest&& request, Exchange& exchange);
  void generate(HttpRequest&& request, std::shared_ptr<Exchange> exchange, Endpoint endpoint);
  void tokenize(HttpRequest&& request, std::shared_ptr<Exchange> exchange, bool detokenize);

  ServiceOptions options_;
  Access access_;
  EventLog& log_;
  HttpServer* server_ = nullptr;
  Worker worker_;
  Metrics metrics_;
  std::atomic<double> progress_{0};
  std::atomic<bool> ready_{false};
  std::optional<ServedModel> model_;  // written before ready_
  bool draining_ = false;
  std::atomic<std::size_t> open_{0};       // replies that are not done
  std::atomic<std::size_t> preparing_{0};  // requests on the preparing thread
  std::uint64_t next_id_ = 0;
  std::string id_salt_;
  std::vector<std::weak_ptr<OpenReply>> replies_;
  RoutingBoard routing_;
  std::uint64_t ticks_ = 0;
};

}  // namespace moracle::serve
