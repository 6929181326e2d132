// GET /version: of the program.
#include "serve/endpoints/endpoint.h"
#include "serve/service_state.h"

namespace moracle::serve {

namespace {

HttpReply version(ServiceState& state, const HttpRequest& /*request*/) {
  return json_reply({{"version", state.options.version}});
}

constexpr std::array kRoutes = {Route{.path = "/version", .method = "GET", .answer = version}};

void describe(OpenApi& document) {
  document.paths["/version"]["get"] = get_operation("Version", {{"type", "object"}});
}

}  // namespace

extern const Endpoint version_endpoint{.routes = kRoutes, .describe = describe};

}  // namespace moracle::serve
