// GET /health: whether requests are served.
#include "serve/endpoints/endpoint.h"
#include "serve/service_state.h"

namespace moracle::serve {

namespace {

HttpReply health(ServiceState& state, const HttpRequest& /*request*/) {
  const auto red = [&](const Json& json) {
    HttpReply reply = json_reply(json, 503);
    reply.headers.emplace_back("Retry-After", std::to_string(state.retry_after()));
    return reply;
  };
  const ServedModel* const model = state.model();
  if (model == nullptr) return red({{"status", "loading"}, {"progress", state.progress.load()}});
  const EngineStatus status = model->engine->status();
  if (status.stalled_s > state.options.stall_s) return red({{"status", "stalled"}, {"seconds", status.stalled_s}});
  if (state.draining) return red({{"status", "draining"}});
  return json_reply({{"status", "ok"}});
}

constexpr std::array kRoutes = {Route{.path = "/health", .method = "GET", .answer = health}};

void describe(OpenApi& document) {
  document.paths["/health"]["get"] = get_operation("200 once requests are served", {{"type", "object"}});
}

}  // namespace

extern const Endpoint health_endpoint{.routes = kRoutes, .describe = describe};

}  // namespace moracle::serve
