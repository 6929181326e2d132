#include "serve/service_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "serve/api/api_error.h"
#include "serve/api/json_text.h"
#include "serve/endpoints/endpoint.h"
#include "serve/limits.h"
#include "serve/open_reply.h"

namespace moracle::serve {

std::uint64_t random_bits() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32U) | device();
}

HttpReply json_reply(const Json& json, int status) {
  return {.status = status, .body = dump(json)};
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}

std::string header_list(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) {
    if (list.size() + name.size() + 2 > kIgnoredBytes) return list + ", ...";
    if (!list.empty()) list += ", ";
    for (const char c : name) list += is_name_character(c) || c == '[' || c == ']' ? c : '?';
  }
  return list;
}

ServiceState::ServiceState(ServiceOptions chosen, AccessRules rules, EventLog& events)
    : options(std::move(chosen)),
      access(std::move(rules)),
      log(events),
      id_salt_(fmt::format("{:08x}", random_bits() & 0xFFFFFFFFU)) {}

void ServiceState::set_ready(const ServedModel& loaded) {
  model_ = loaded;
  routing.set_shape(loaded.layers, loaded.experts);
  progress = 1;
  ready_.store(true, std::memory_order_release);
}

const ServedModel* ServiceState::model() const {
  return ready_.load(std::memory_order_acquire) ? &*model_ : nullptr;
}

Result<> ServiceState::check_model(const std::string& name) const {
  const auto& names = options.names;
  if (name.empty() || options.any_model || std::find(names.begin(), names.end(), name) != names.end()) return Ok{};
  return Error{.code = "request.model",
               .where = "model",
               .wanted = "'" + names.front() + "'",
               .found = "'" + name.substr(0, kShownNameBytes) + "'",
               .advice = "GET /v1/models lists the names"};
}

void ServiceState::report(const HttpRequest& request, int status, HeaderList& headers) {
  const Route* const route = request.route != nullptr ? request.route : find_route(request.path);
  metrics.count_http(route != nullptr ? route->path : "none", request.method, status);
  const std::string_view origin = request.header("origin");
  if (!access.shares_with(origin)) return;
  headers.emplace_back("Access-Control-Allow-Origin", std::string(origin));
  headers.emplace_back("Access-Control-Expose-Headers", "retry-after, x-moracle-ignored, x-request-id");
  headers.emplace_back("Vary", "Origin");
}

void ServiceState::answer(const HttpRequest& request, Exchange& exchange, HttpReply reply) {
  report(request, reply.status, reply.headers);
  exchange.reply(std::move(reply));
}

HeaderList ServiceState::stream_headers(const HttpRequest& request) {
  HeaderList headers;
  report(request, 200, headers);
  return headers;
}

HttpReply ServiceState::error_reply(const Error& error, const Route* route) {
  const ApiError wrong = api_error(error);
  if (error.code == "scheduler.queue") metrics.count_rejection("queue");
  HttpReply reply{
      .status = wrong.status,
      .body = route != nullptr && route->error_body != nullptr ? route->error_body(wrong) : error_body(wrong)};
  if (wrong.status == 429 || wrong.status == 503)
    reply.headers.emplace_back("Retry-After", std::to_string(retry_after()));
  if (wrong.status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

int ServiceState::retry_after() const {
  constexpr int kWhileLoading = 5;
  const ServedModel* const loaded = model();
  if (loaded == nullptr) return kWhileLoading;
  const EngineStatus status = loaded->engine->status();
  const double prompts = static_cast<double>(status.waiting_tokens) / std::max(status.prefill_rate, 1.0);
  const double requests = static_cast<double>(status.waiting) * status.request_seconds;
  return static_cast<int>(std::clamp(std::ceil(std::max(prompts, requests)), 1.0, double{kMostRetrySeconds}));
}

void ServiceState::report_routing() {
  if (!routing.watched()) return;
  const auto now = model()->engine->routing();
  if (now == nullptr) return;
  routing.report(*now, [&](const std::string& id, const std::string& key, ExpertCounters::Counts& counts) {
    bool found = false;
    for (const auto& weak : replies) {
      const auto reply = weak.lock();
      if (!reply || reply->id() != id || reply->key() != key) continue;
      found = reply->add_routing(*now, counts) || found;
    }
    return found;
  });
}

std::string ServiceState::next_id() {
  return fmt::format("{}{:08x}", id_salt_, ++next_id_);
}

}  // namespace moracle::serve
