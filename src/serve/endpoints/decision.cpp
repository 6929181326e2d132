// GET /v1/decision: which kernel serves each layer, and why.
#include "serve/endpoints/endpoint.h"
#include "serve/service_state.h"

namespace moracle::serve {

namespace {

HttpReply decision(ServiceState& state, const HttpRequest& /*request*/) {
  return json_reply(state.model()->decision);
}

constexpr std::array kRoutes = {
    Route{.path = "/v1/decision", .method = "GET", .needs_model = true, .answer = decision}};

void describe(OpenApi& document) {
  document.paths["/v1/decision"]["get"] =
      get_operation("Which kernel serves each layer, and why", {{"type", "object"}});
}

}  // namespace

extern const Endpoint decision_endpoint{.routes = kRoutes, .describe = describe};

}  // namespace moracle::serve
