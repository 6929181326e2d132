#include "serve/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <random>

#include "base/guarded.h"
#include "serve/api/api_error.h"
#include "serve/api/openapi.h"
#include "serve/open_reply.h"
#include "serve/page/assets.h"

namespace moracle::serve {

namespace {

constexpr std::size_t kIgnoredBytes = 1024;
constexpr std::size_t kRequestIdBytes = 64;
constexpr int kLongestRetry = 60;
constexpr std::string_view kModelPrefix = "/v1/models/";
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}

std::uint64_t random_bits() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32U) | device();
}

HttpReply json_reply(const Json& json, int status = 200) {
  return {.status = status, .body = dump(json)};
}

// "org/name" of "org%2Fname"; escapes that are none stay.
std::string without_escapes(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    unsigned value = 0;
    const std::string digits(text.substr(at + 1, 2));
    const char* const end = digits.c_str() + digits.size();
    const bool escapes =
        text[at] == '%' && digits.size() == 2 && std::from_chars(digits.c_str(), end, value, 16).ptr == end;
    out += escapes ? static_cast<char>(value) : text[at];
    if (escapes) at += 2;
  }
  return out;
}

// What its body held is free.
std::shared_ptr<HttpRequest> without_body(HttpRequest&& request) {
  std::string().swap(request.body);
  request.held.reset();
  return std::make_shared<HttpRequest>(std::move(request));
}

bool is_json(std::string_view type) {
  std::string lower;
  for (const char c : type.substr(0, type.find(';'))) {
    if (c != ' ') lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return lower == "application/json";
}

}  // namespace

std::string header_list(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) {
    if (list.size() + name.size() + 2 > kIgnoredBytes) return list + ", ...";
    if (!list.empty()) list += ", ";
    for (const char c : name) list += is_word(c) ? c : '?';
  }
  return list;
}

// One more for as long as it lives.
class Counted {
 public:
  explicit Counted(std::atomic<std::size_t>& count) : count_(count) { ++count_; }
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<std::size_t>& count_;
};

struct Service::Route {
  std::string_view path;
  std::string_view method;
  HttpReply (Service::*answer)(const HttpRequest&);  // null: the answer comes later
  bool needs_model;
};

std::span<const Service::Route> Service::routes() {
  static constexpr std::array kRoutes = {
      Route{"/v1/chat/completions", "POST", nullptr, true},
      Route{"/v1/completions", "POST", nullptr, true},
      Route{"/tokenize", "POST", nullptr, true},
      Route{"/detokenize", "POST", nullptr, true},
      Route{"/v1/models", "GET", &Service::models, false},
      Route{"/v1/models/", "GET", &Service::models, false},
      Route{"/tokenizer_info", "GET", &Service::tokenizer_info, true},
      Route{"/health", "GET", &Service::health, false},
      Route{"/version", "GET", &Service::version, false},
      Route{"/metrics", "GET", &Service::metrics, false},
      Route{"/openapi.json", "GET", &Service::openapi, false},
      Route{"/v1/status", "GET", &Service::status, false},
      Route{"/v1/decision", "GET", &Service::decision, true},
      Route{"/v1/routing", "GET", nullptr, true},
      Route{"/", "GET", &Service::page, false},
      Route{"/page.js", "GET", &Service::page, false},
      Route{"/page.css", "GET", &Service::page, false},
  };
  return kRoutes;
}

Service::Service(ServiceOptions options, AccessRules rules, EventLog& log)
    : options_(std::move(options)),
      access_(std::move(rules)),
      log_(log),
      id_salt_(fmt::format("{:08x}", random_bits() & 0xFFFFFFFFU)) {}

Service::~Service() {
  worker_.stop();
}

void Service::set_progress(double done, double total) {
  progress_ = total > 0 ? done / total : 0;
}

void Service::set_ready(const ServedModel& model) {
  model_ = model;
  routing_.set_shape(model.layers, model.experts);
  progress_ = 1;
  ready_.store(true, std::memory_order_release);
}

void Service::set_draining() {
  draining_ = true;
  routing_.end();
}

void Service::cancel_all() {
  for (const auto& weak : replies_) {
    if (const auto open = weak.lock()) open->abandon();
  }
  replies_.clear();
}

const Service::Route* Service::find_route(const HttpRequest& request) const {
  const Route* found = nullptr;
  for (const Route& route : routes()) {
    const bool is_model = route.path == kModelPrefix;
    if (is_model ? request.path.starts_with(kModelPrefix) : request.path == route.path) found = &route;
  }
  return found;
}

// --- errors ---

HttpReply Service::reply_of(const Error& error) {
  const ApiError wrong = api_error(error);
  if (error.code == "scheduler.queue") metrics_.count_rejection("queue");
  HttpReply reply{.status = wrong.status, .body = error_body(wrong)};
  if (wrong.status == 429 || wrong.status == 503)
    reply.headers.emplace_back("Retry-After", std::to_string(retry_after()));
  if (wrong.status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

// Seconds until what waits is likely done, by measured rates: its requests' by those that ended, and no less than its
// prompts'.
int Service::retry_after() const {
  if (!ready_.load(std::memory_order_acquire)) return 5;
  const EngineStatus status = model_->engine->status();
  const double prompts = static_cast<double>(status.waiting_tokens) / std::max(status.prefill_rate, 1.0);
  const double requests = static_cast<double>(status.waiting) * status.request_seconds;
  return static_cast<int>(std::clamp(std::ceil(std::max(prompts, requests)), 1.0, double{kLongestRetry}));
}

HttpReply Service::fault(const HttpRequest& request, const std::string& code, const std::string& wanted,
                         const std::string& found) {
  if (code == "connections.full") metrics_.count_rejection("connections");
  HttpReply reply = reply_of(Error{.code = code, .wanted = wanted, .found = found});
  told(request, reply.status, reply.headers);
  return reply;
}

void Service::answer(const HttpRequest& request, Exchange& exchange, HttpReply reply) {
  told(request, reply.status, reply.headers);
  exchange.reply(std::move(reply));
}

HeaderList Service::stream_headers(const HttpRequest& request) {
  HeaderList headers;
  told(request, 200, headers);
  return headers;
}

// Counts an answer, and lets pages of allowed origins read it.
void Service::told(const HttpRequest& request, int status, HeaderList& headers) {
  const Route* const route = find_route(request);
  metrics_.count_http(route != nullptr ? route->path : "none", request.method, status);
  const std::string_view origin = request.header("origin");
  if (!access_.shares_with(origin)) return;
  headers.emplace_back("Access-Control-Allow-Origin", std::string(origin));
  headers.emplace_back("Access-Control-Expose-Headers", "retry-after, x-moracle-ignored, x-request-id");
  headers.emplace_back("Vary", "Origin");
}

// --- before the body is read ---

std::optional<HttpReply> Service::refuse(HttpRequest& request) {
  const auto refused = [&](const Error& error) {
    HttpReply reply = reply_of(error);
    told(request, reply.status, reply.headers);
    return std::optional(std::move(reply));
  };
  const bool preflight = request.method == "OPTIONS" && access_.shares_with(request.header("origin"));
  const auto name = access_.check({.path = preflight ? "/health" : std::string_view(request.path),
                                   .host = request.header("host"),
                                   .origin = request.header("origin"),
                                   .authorization = request.header("authorization"),
                                   .api_key = request.header("x-api-key")});
  if (!name.ok()) return refused(name.error());
  request.key = *name;
  const Route* const route = find_route(request);
  if (route == nullptr) {
    return refused(
        {.code = "request.path", .wanted = "a path of this server", .found = "'" + request.path.substr(0, 80) + "'"});
  }
  if (preflight) {
    return HttpReply{.status = 204,
                     .headers = {{"Access-Control-Allow-Origin", std::string(request.header("origin"))},
                                 {"Access-Control-Allow-Methods", std::string(route->method)},
                                 {"Access-Control-Allow-Headers", "*, authorization"},  // which no star stands for
                                 {"Access-Control-Max-Age", "600"},
                                 {"Vary", "Origin"}}};
  }
  const bool heads = request.method == "HEAD" && route->method == "GET";
  if (request.method != route->method && !heads) {
    auto reply = refused(
        {.code = "request.method", .wanted = std::string(route->method), .found = request.method.substr(0, 20)});
    reply->headers.emplace_back("Allow", std::string(route->method));
    return reply;
  }
  if (route->method == "POST" && !is_json(request.header("content-type")))
    return refused({.code = "request.media_type", .wanted = "Content-Type: application/json", .found = "another"});
  if (route->method == "POST" && !request.header("content-encoding").empty())
    return refused({.code = "request.media_type", .wanted = "a body without Content-Encoding", .found = "one with it"});
  if (draining_ && route->needs_model) {
    metrics_.count_rejection("draining");
    return refused({.code = "server.draining",
                    .wanted = "a server that goes on",
                    .found = "one that ends",
                    .advice = "try another"});
  }
  if (route->needs_model && !ready_.load(std::memory_order_acquire))
    return refused({.code = "server.loading",
                    .wanted = "a loaded model",
                    .found = fmt::format("{:.0f} % of it", 100 * progress_.load())});
  return std::nullopt;
}

// --- requests ---

void Service::handle(HttpRequest&& request, std::shared_ptr<Exchange> exchange) {
  const Route* const route = find_route(request);
  if (route->answer != nullptr) {
    answer(request, *exchange, (this->*route->answer)(request));
  } else if (request.path == "/v1/chat/completions") {
    generate(std::move(request), std::move(exchange), Endpoint::chat);
  } else if (request.path == "/v1/completions") {
    generate(std::move(request), std::move(exchange), Endpoint::completions);
  } else if (request.path == "/v1/routing") {
    watch_routing(request, exchange);
  } else {
    tokenize(std::move(request), std::move(exchange), request.path == "/detokenize");
  }
}

Result<> Service::check_model(const std::string& name) const {
  const auto& names = options_.names;
  if (name.empty() || options_.any_model || std::find(names.begin(), names.end(), name) != names.end()) return Ok{};
  return Error{.code = "request.model",
               .where = "model",
               .wanted = "'" + names.front() + "'",
               .found = "'" + name.substr(0, 80) + "'",
               .advice = "GET /v1/models lists the names"};
}

std::shared_ptr<WaitingRequest> Service::await_turn(HttpRequest&& request, Exchange& exchange) {
  auto waiting = std::make_shared<WaitingRequest>(std::move(request));
  exchange.on_gone([this, waiting](std::string_view cause) {
    waiting->leave();
    metrics_.count_cancel(cause);
  });
  return waiting;
}

void Service::generate(HttpRequest&& request, std::shared_ptr<Exchange> exchange, Endpoint endpoint) {
  const auto arrived = std::chrono::steady_clock::now();
  auto waiting = await_turn(std::move(request), *exchange);
  const PrepareOptions how{.context = model_->context,
                           .strict = options_.strict,
                           .seed = random_bits() >> 11U,
                           .max_replies = model_->max_queue};
  auto counted = std::make_shared<Counted>(preparing_);
  worker_.post([=, this, text = model_->text, counted = std::move(counted)]() mutable {
    auto taken = waiting->take();
    if (!taken) return;
    auto prepared = std::make_shared<Result<PreparedRequest>>(prepare_request(endpoint, taken->body, *text, how));
    auto asked = without_body(*std::move(taken));
    server_->post([=, this, exchange = std::move(exchange), counted = std::move(counted)]() mutable {
      if (waiting->left()) return;
      if (prepared->ok()) {
        const auto known = check_model((*prepared)->api.model);
        if (!known.ok()) *prepared = known.error();
      }
      if (!prepared->ok()) {
        answer(*asked, *exchange, reply_of(prepared->error()));
        return;
      }
      PreparedRequest& ready = prepared->value();
      metrics_.count_ignored(ready.api.ignored.size());
      std::string wished =
          ready.api.request_id.empty() ? std::string(asked->header("x-request-id")) : ready.api.request_id;
      wished.resize(std::min(wished.size(), kRequestIdBytes));
      std::replace_if(wished.begin(), wished.end(), [](char c) { return !is_word(c); }, '_');
      if (wished.empty()) wished = fmt::format("{}{:08x}", id_salt_, ++next_id_);
      ReplyHead head{.endpoint = endpoint,
                     .id = (endpoint == Endpoint::chat ? "chatcmpl-" : "cmpl-") + wished,
                     .model = ready.api.model.empty() ? options_.names.front() : ready.api.model,
                     .fingerprint = model_->fingerprint,
                     .created = std::time(nullptr),
                     .seed = static_cast<std::int64_t>(ready.seed)};
      const auto open = std::make_shared<OpenReply>(*this, std::move(*asked), std::move(exchange), std::move(ready),
                                                    std::move(head), arrived);
      replies_.push_back(open);
      open->start();
    });
  });
}

void Service::tokenize(HttpRequest&& request, std::shared_ptr<Exchange> exchange, bool detokenize) {
  auto waiting = await_turn(std::move(request), *exchange);
  worker_.post([=, this, text = model_->text, context = model_->context]() mutable {
    auto taken = waiting->take();
    if (!taken) return;
    const ModelCheck known = [this](const std::string& name) { return check_model(name); };
    auto reply = std::make_shared<Result<Json>>(detokenize ? detokenize_reply(taken->body, *text, known)
                                                           : tokenize_reply(taken->body, *text, context, known));
    const auto asked = without_body(*std::move(taken));
    server_->post([=, this, exchange = std::move(exchange)] {
      answer(*asked, *exchange, reply->ok() ? json_reply(reply->value()) : reply_of(reply->error()));
    });
  });
}

// A stream, of all requests and of the one that "?request=ID" names.
void Service::watch_routing(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  constexpr std::string_view kName = "request=";
  std::string_view id = request.query;
  if (id.starts_with(kName)) id.remove_prefix(kName.size());
  if (id.size() == request.query.size() ? !id.empty() : !std::all_of(id.begin(), id.end(), is_word)) {
    answer(request, *exchange,
           reply_of(Error{.code = "request.query",
                          .where = "request",
                          .wanted = "nothing, or request=ID of a reply",
                          .found = "another query"}));
    return;
  }
  if (request.method == "HEAD") {
    answer(request, *exchange, HttpReply{.type = "text/event-stream; charset=utf-8"});
    return;
  }
  if (routing_.full()) {
    answer(request, *exchange,
           reply_of(Error{.code = "routing.full",
                          .wanted = fmt::format("at most {} streams", RoutingBoard::kWatchers),
                          .found = "more"}));
    return;
  }
  exchange->begin_stream(stream_headers(request));
  routing_.watch(exchange, std::string(id), request.key);
  tell_routing();
}

void Service::tell_routing() {
  if (!routing_.watched()) return;
  const auto now = model_->engine->routing();
  if (now == nullptr) return;
  routing_.tell(*now, [&](const std::string& id, const std::string& key, RoutingBoard::Counts& counts) {
    bool found = false;
    for (const auto& weak : replies_) {
      const auto open = weak.lock();
      if (!open || open->id() != id || open->key() != key) continue;
      found = open->add_routing(*now, counts) || found;
    }
    return found;
  });
}

void Service::tick() {
  tell_routing();
  if (++ticks_ % 4 != 0) return;
  std::erase_if(replies_, [](const auto& weak) { return weak.expired(); });
  if (!ready_.load(std::memory_order_acquire)) return;
  metrics_.observe_steps(model_->engine->take_steps());
  if (options_.expert_metrics) static_cast<void>(model_->engine->routing());  // the next one is asked for
}

// --- answers from what is at hand ---

HttpReply Service::health(const HttpRequest& /*request*/) {
  const auto red = [&](const Json& json) {
    HttpReply reply = json_reply(json, 503);
    reply.headers.emplace_back("Retry-After", std::to_string(retry_after()));
    return reply;
  };
  if (!ready_.load(std::memory_order_acquire)) return red({{"status", "loading"}, {"progress", progress_.load()}});
  const EngineStatus status = model_->engine->status();
  if (status.stalled_s > options_.stall_s) return red({{"status", "stalled"}, {"seconds", status.stalled_s}});
  if (draining_) return red({{"status", "draining"}});
  return json_reply({{"status", "ok"}});
}

HttpReply Service::models(const HttpRequest& request) {
  const auto model_of = [&](const std::string& name) -> Json {
    const Json context = ready_.load(std::memory_order_acquire) ? Json(model_->context) : Json(nullptr);
    return {{"id", name},
            {"object", "model"},
            {"created", options_.created},
            {"owned_by", "moracle"},
            {"max_model_len", context}};
  };
  if (request.path.starts_with(kModelPrefix)) {
    const std::string name = without_escapes(request.path.substr(kModelPrefix.size()));
    const bool known = std::find(options_.names.begin(), options_.names.end(), name) != options_.names.end();
    if (known) return json_reply(model_of(name));
    return reply_of(Error{.code = "request.model",
                          .where = "model",
                          .wanted = "'" + options_.names.front() + "'",
                          .found = "'" + name.substr(0, 80) + "'"});
  }
  Json list = Json::array();
  for (const std::string& name : options_.names) list.push_back(model_of(name));
  return json_reply({{"object", "list"}, {"data", std::move(list)}});
}

HttpReply Service::version(const HttpRequest& /*request*/) {
  return json_reply({{"version", options_.version}});
}

HttpReply Service::metrics(const HttpRequest& /*request*/) {
  const bool ready = ready_.load(std::memory_order_acquire);
  const EngineStatus status = ready ? model_->engine->status() : EngineStatus{};
  const auto backends = ready ? model_->backends : std::vector<std::pair<std::string, std::string>>();
  if (ready) metrics_.observe_steps(model_->engine->take_steps());
  HttpReply reply{.type = "text/plain; version=0.0.4; charset=utf-8",
                  .body = metrics_.text(options_.names.front(), status, backends)};
  const auto routing = ready && options_.expert_metrics ? model_->engine->routing() : nullptr;
  if (routing != nullptr) reply.body += expert_metrics(options_.names.front(), *routing, model_->experts);
  return reply;
}

HttpReply Service::openapi(const HttpRequest& /*request*/) {
  return json_reply(openapi_json(options_.version));
}

HttpReply Service::status(const HttpRequest& /*request*/) {
  const bool ready = ready_.load(std::memory_order_acquire);
  Json reply = {{"state", !ready      ? "loading"
                          : draining_ ? "draining"
                                      : "ready"},
                {"progress", progress_.load()},
                {"model", options_.names.front()},
                {"connections", server_->connections()},
                {"body_bytes", server_->bodies_bytes()},
                {"open_requests", open_.load()},
                {"rss_bytes", resident_bytes()}};
  if (ready) {
    const EngineStatus engine = model_->engine->status();
    reply["context"] = model_->context;
    reply["system_fingerprint"] = model_->fingerprint;
    reply["batch_invariant"] = model_->batch_invariant;
    reply["running"] = engine.running;
    reply["waiting"] = engine.waiting;
    reply["waiting_tokens"] = engine.waiting_tokens;
    reply["kv_bytes"] = engine.kv_bytes;
    reply["kv_prefix_bytes"] = engine.kv_prefix_bytes;
    reply["kv_budget_bytes"] = engine.kv_budget;
    reply["steps"] = engine.steps;
    reply["stalled_s"] = engine.stalled_s;
    reply["prompt_tokens"] = metrics_.prompt_tokens();
    reply["generated_tokens"] = metrics_.generated_tokens();
  }
  return json_reply(reply);
}

HttpReply Service::decision(const HttpRequest& /*request*/) {
  return json_reply(model_->decision);
}

HttpReply Service::tokenizer_info(const HttpRequest& /*request*/) {
  const TokenizerConfig& config = model_->text->tokenizer().config();
  const auto token = [&](const char* name) {
    const std::string text = config.token(name);
    return text.empty() ? Json(nullptr) : Json(text);
  };
  const ChatTemplates& templates = model_->text->templates();
  return json_reply({{"eos_token", token("eos_token")},
                     {"bos_token", token("bos_token")},
                     {"pad_token", token("pad_token")},
                     {"chat_template", templates.empty() ? Json(nullptr) : Json(templates.sources())},
                     {"vocab_size", model_->text->tokenizer().vocab_size()}});
}

HttpReply Service::page(const HttpRequest& request) {
  const auto asset = find_asset(request.path);
  if (!asset) return reply_of(Error{.code = "request.path", .wanted = "a path of this server", .found = "another"});
  HttpReply reply{.type = std::string(asset->type),
                  .headers = {{"Content-Security-Policy", kPolicy},
                              {"Referrer-Policy", "no-referrer"},
                              {"Cache-Control", "no-cache"},
                              {"ETag", std::string(asset->tag)}}};
  if (request.header("if-none-match") == asset->tag) {
    reply.status = 304;
  } else {
    reply.body = asset->text;
  }
  return reply;
}

}  // namespace moracle::serve
