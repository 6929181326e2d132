// GET /metrics: for Prometheus.
#include "serve/endpoints/endpoint.h"
#include "serve/service_state.h"

namespace moracle::serve {

namespace {

HttpReply metrics(ServiceState& state, const HttpRequest& /*request*/) {
  const std::string& name = state.options.names.front();
  const ServedModel* const model = state.model();
  HttpReply reply{.type = "text/plain; version=0.0.4; charset=utf-8"};
  if (model == nullptr) {
    reply.body = state.metrics.text(name, {}, {});
    return reply;
  }
  const EngineStatus status = model->engine->status();
  state.metrics.observe_steps(model->engine->take_steps());
  reply.body = state.metrics.text(name, status, model->backends);
  const auto routing = state.options.expert_metrics ? model->engine->routing() : nullptr;
  if (routing != nullptr) reply.body += expert_metrics(name, *routing, model->experts);
  return reply;
}

constexpr std::array kRoutes = {Route{.path = "/metrics", .method = "GET", .answer = metrics}};

void describe(OpenApi& document) {
  document.paths["/metrics"]["get"] = get_operation("Prometheus metrics", schema::text(), "text/plain");
}

}  // namespace

extern const Endpoint metrics_endpoint{.routes = kRoutes, .describe = describe};

}  // namespace moracle::serve
