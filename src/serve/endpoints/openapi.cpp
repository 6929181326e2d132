// GET /openapi.json: all endpoints.
#include "serve/endpoints/endpoint.h"
#include "serve/service_state.h"

namespace moracle::serve {

namespace {

HttpReply openapi(ServiceState& state, const HttpRequest& /*request*/) {
  return json_reply(openapi_json(state.options.version));
}

constexpr std::array kRoutes = {Route{.path = "/openapi.json", .method = "GET", .answer = openapi}};

void describe(OpenApi& document) {
  document.paths["/openapi.json"]["get"] = get_operation("This document", {{"type", "object"}});
}

}  // namespace

extern const Endpoint openapi_endpoint{.routes = kRoutes, .describe = describe};

}  // namespace moracle::serve
