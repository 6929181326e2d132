#include "serve/service.h"

#include <fmt/format.h>

#include <algorithm>

#include "serve/endpoints/endpoint.h"
#include "serve/limits.h"
#include "serve/open_reply.h"

namespace moracle::serve {

namespace {

constexpr std::size_t kShownMethodBytes = 20;

bool is_json(std::string_view type) {
  std::string lower;
  for (const char c : type.substr(0, type.find(';'))) {
    if (c != ' ') lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return lower == "application/json";
}

}  // namespace

Service::Service(ServiceOptions options, AccessRules rules, EventLog& log)
    : state_(std::move(options), std::move(rules), log) {}

Service::~Service() {
  stop_preparing();
}

void Service::set_draining() {
  state_.draining = true;
  state_.routing.end();
}

void Service::cancel_all() {
  for (const auto& weak : state_.replies) {
    if (const auto open = weak.lock()) open->abandon();
  }
  state_.replies.clear();
}

HttpReply Service::fault(const HttpRequest& request, const std::string& code, const std::string& wanted,
                         const std::string& found) {
  if (code == "connections.full") state_.metrics.count_rejection("connections");
  HttpReply reply = state_.error_reply(Error{.code = code, .wanted = wanted, .found = found}, find_route(request.path));
  state_.report(request, reply.status, reply.headers);
  return reply;
}

std::optional<HttpReply> Service::refuse(HttpRequest& request) {
  const auto refused = [&](const Error& error) {
    HttpReply reply = state_.error_reply(error, request.route);
    state_.report(request, reply.status, reply.headers);
    return reply;
  };
  request.route = find_route(request.path);
  const bool preflight = request.method == "OPTIONS" && state_.access.shares_with(request.header("origin"));
  const auto name = state_.access.check({.path = preflight ? "/health" : std::string_view(request.path),
                                         .host = request.header("host"),
                                         .origin = request.header("origin"),
                                         .authorization = request.header("authorization"),
                                         .api_key = request.header("x-api-key")});
  if (!name.ok()) return refused(name.error());
  request.key = *name;
  if (request.route == nullptr) {
    return refused({.code = "request.path",
                    .wanted = "a path of this server",
                    .found = "'" + request.path.substr(0, kShownNameBytes) + "'"});
  }
  if (preflight) return preflight_reply(request);
  const auto wrong = misfit(request);
  if (!wrong) return std::nullopt;
  HttpReply reply = refused(*wrong);
  if (wrong->code == "request.method") reply.headers.emplace_back("Allow", std::string(request.route->method));
  return reply;
}

HttpReply Service::preflight_reply(const HttpRequest& request) const {
  return HttpReply{.status = 204,
                   .headers = {{"Access-Control-Allow-Origin", std::string(request.header("origin"))},
                               {"Access-Control-Allow-Methods", std::string(request.route->method)},
                               {"Access-Control-Allow-Headers", "*, authorization"},  // which no star stands for
                               {"Access-Control-Max-Age", "600"},
                               {"Vary", "Origin"}}};
}

std::optional<Error> Service::misfit(const HttpRequest& request) {
  const Route& route = *request.route;
  const bool heads = request.method == "HEAD" && route.method == "GET";
  if (request.method != route.method && !heads) {
    return Error{.code = "request.method",
                 .wanted = std::string(route.method),
                 .found = request.method.substr(0, kShownMethodBytes)};
  }
  if (route.method == "POST" && !is_json(request.header("content-type")))
    return Error{.code = "request.media_type", .wanted = "Content-Type: application/json", .found = "another"};
  if (route.method == "POST" && !request.header("content-encoding").empty())
    return Error{.code = "request.media_type", .wanted = "a body without Content-Encoding", .found = "one with it"};
  if (!route.needs_model) return std::nullopt;
  if (state_.draining) {
    state_.metrics.count_rejection("draining");
    return Error{.code = "server.draining",
                 .wanted = "a server that goes on",
                 .found = "one that ends",
                 .advice = "try another"};
  }
  if (state_.model() != nullptr) return std::nullopt;
  return Error{.code = "server.loading",
               .wanted = "a loaded model",
               .found = fmt::format("{:.0f} % of it", 100 * state_.progress.load())};
}

void Service::handle(HttpRequest&& request, std::shared_ptr<Exchange> exchange) {
  const Route& route = *request.route;
  if (route.answer != nullptr) {
    state_.answer(request, *exchange, route.answer(state_, request));
  } else {
    route.begin(state_, std::move(request), std::move(exchange));
  }
}

void Service::tick() {
  constexpr std::uint64_t kTicksOfASecond = 4;
  state_.report_routing();
  if (++ticks_ % kTicksOfASecond != 0) return;
  std::erase_if(state_.replies, [](const auto& weak) { return weak.expired(); });
  const ServedModel* const model = state_.model();
  if (model == nullptr) return;
  state_.metrics.observe_steps(model->engine->take_steps());
  if (state_.options.expert_metrics) static_cast<void>(model->engine->routing());  // the next one is asked for
}

}  // namespace moracle::serve
