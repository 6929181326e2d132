// The state that the endpoints of one server share: its model, its counts, and how they answer.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "generate/model_text.h"
#include "serve/engine/token_engine.h"
#include "serve/event_log.h"
#include "serve/expert_counters.h"
#include "serve/http/access.h"
#include "serve/http/http_server.h"
#include "serve/metrics.h"
#include "serve/worker.h"
#include "text/constrain/model_outputs.h"

namespace moracle::serve {

class OpenReply;

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

// The model once it is loaded.
struct ServedModel {
  const ModelText* text = nullptr;
  std::shared_ptr<ModelOutputs> outputs{};
  TokenEngine* engine = nullptr;
  std::int64_t context = 0;
  std::int64_t max_queue = 0;  // replies that may wait
  std::int64_t layers = 0, experts = 0;
  std::string fingerprint;
  bool batch_invariant = false;
  bool sandboxed = false;
  Json decision{};                                              // `explain --json`
  std::vector<std::pair<std::string, std::string>> backends{};  // by layer kind
};

// One more for as long as it lives.
class InFlightGuard {
 public:
  explicit InFlightGuard(std::atomic<std::size_t>& count) : count_(count) { ++count_; }
  ~InFlightGuard() { --count_; }
  InFlightGuard(const InFlightGuard&) = delete;
  InFlightGuard& operator=(const InFlightGuard&) = delete;

 private:
  std::atomic<std::size_t>& count_;
};

// A thread that compiles has a sixth of a core where all cores compute.
inline constexpr int kHolderNiceness = 8;

// Used on the I/O thread; what other threads may call says so.
struct ServiceState {
  ServiceState(ServiceOptions chosen, AccessRules rules, EventLog& events);

  // On any thread, from here on const.
  void set_ready(const ServedModel& loaded);
  [[nodiscard]] const ServedModel* model() const;  // on any thread; null: it loads
  // Whether requests may name this model; on any thread. Error: "request.model".
  [[nodiscard]] Result<> check_model(const std::string& name) const;

  // Counts the answer to a request, and lets pages of allowed origins read it.
  void report(const HttpRequest& request, int status, HeaderList& headers);
  void answer(const HttpRequest& request, Exchange& exchange, HttpReply reply);
  // The headers of an answer in pieces, which begins.
  [[nodiscard]] HeaderList stream_headers(const HttpRequest& request);
  // In the shape of the route's API; null: OpenAI's.
  [[nodiscard]] HttpReply error_reply(const Error& error, const Route* route = nullptr);
  // Seconds until what waits is likely done, by measured rates: its requests' by those that ended, and no less than its
  // prompts'.
  [[nodiscard]] int retry_after() const;
  // Reports to the streams of /v1/routing what each has not heard.
  void report_routing();
  [[nodiscard]] std::string next_id();

  const ServiceOptions options;
  const Access access;
  EventLog& log;
  HttpServer* server = nullptr;    // before the first request
  Worker worker;                   // prepares requests: templates, tokens
  Worker holder{kHolderNiceness};  // compiles what replies are held to
  Metrics metrics;
  ExpertCounters routing;
  std::atomic<double> progress{0};  // of the load
  bool draining = false;
  std::atomic<std::size_t> open{0};       // replies that are not done
  std::atomic<std::size_t> preparing{0};  // requests on the worker
  std::vector<std::weak_ptr<OpenReply>> replies;

 private:
  std::optional<ServedModel> model_;  // written before ready_
  std::atomic<bool> ready_{false};
  std::uint64_t next_id_ = 0;
  std::string id_salt_;
};

[[nodiscard]] std::uint64_t random_bits();
[[nodiscard]] HttpReply json_reply(const Json& json, int status = 200);
// A letter, digit, '_', '-' or '.'.
[[nodiscard]] bool is_name_character(char c);
// Names for a header's value: what is no character of one becomes '?'; at most kIgnoredBytes.
[[nodiscard]] std::string header_list(const std::vector<std::string>& names);

}  // namespace moracle::serve
