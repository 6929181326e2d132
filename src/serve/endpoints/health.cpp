// GET /health and /readyz: whether requests are served. GET /livez: whether the process deserves to live.
#include "serve/endpoints/endpoint.h"
#include "serve/service_state.h"

namespace moracle::serve {

namespace {

HttpReply red(const ServiceState& state, const Json& json) {
  HttpReply reply = json_reply(json, 503);
  reply.headers.emplace_back("Retry-After", std::to_string(state.retry_after()));
  return reply;
}

// A server that loads or drains lives; a supervisor that ended it would end what it waits for.
HttpReply live(ServiceState& state, const HttpRequest& /*request*/) {
  const ServedModel* const model = state.model();
  const double seconds = model == nullptr ? 0 : model->engine->status().stalled_s;
  if (seconds > state.options.stall_s) return red(state, {{"status", "stalled"}, {"seconds", seconds}});
  return json_reply({{"status", "ok"}});
}

HttpReply health(ServiceState& state, const HttpRequest& request) {
  if (state.model() == nullptr) return red(state, {{"status", "loading"}, {"progress", state.progress.load()}});
  HttpReply reply = live(state, request);
  return reply.status == 200 && state.draining ? red(state, {{"status", "draining"}}) : reply;
}

constexpr std::array kRoutes = {Route{.path = "/health", .method = "GET", .answer = health},
                                Route{.path = "/livez", .method = "GET", .answer = live},
                                Route{.path = "/readyz", .method = "GET", .answer = health}};

void describe(OpenApi& document) {
  document.paths["/health"]["get"] = get_operation("200 once requests are served", {{"type", "object"}});
  document.paths["/livez"]["get"] = get_operation("200 unless the engine is stalled", {{"type", "object"}});
  document.paths["/readyz"]["get"] = get_operation("As /health, to any Host", {{"type", "object"}});
}

}  // namespace

extern const Endpoint health_endpoint{.routes = kRoutes, .describe = describe};

}  // namespace moracle::serve
