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

// Seconds without a step where the engine has work and takes none, or 0.
double stalled(const ServiceState& state) {
  const ServedModel* const model = state.model();
  const double seconds = model == nullptr ? 0 : model->engine->status().stalled_s;
  return seconds > state.options.stall_s ? seconds : 0;
}

HttpReply health(ServiceState& state, const HttpRequest& /*request*/) {
  if (state.model() == nullptr) return red(state, {{"status", "loading"}, {"progress", state.progress.load()}});
  if (const double seconds = stalled(state); seconds > 0)
    return red(state, {{"status", "stalled"}, {"seconds", seconds}});
  if (state.draining) return red(state, {{"status", "draining"}});
  return json_reply({{"status", "ok"}});
}

// A server that loads or drains lives; a supervisor that ended it would end what it waits for.
HttpReply live(ServiceState& state, const HttpRequest& /*request*/) {
  if (const double seconds = stalled(state); seconds > 0)
    return red(state, {{"status", "stalled"}, {"seconds", seconds}});
  return json_reply({{"status", "ok"}});
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
