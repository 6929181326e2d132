// GET /v1/routing: a stream of how many tokens each expert took, of all requests and of the one that "?request=ID"
// names.
#include <fmt/format.h>

#include <algorithm>

#include "serve/endpoints/endpoint.h"
#include "serve/service_state.h"

namespace moracle::serve {

namespace {

void routing(ServiceState& state, HttpRequest&& request, std::shared_ptr<Exchange> exchange) {
  constexpr std::string_view kName = "request=";
  std::string_view id = request.query;
  if (id.starts_with(kName)) id.remove_prefix(kName.size());
  const bool named = id.size() != request.query.size();
  if (named ? !std::all_of(id.begin(), id.end(), is_name_character) : !id.empty()) {
    state.answer(request, *exchange,
                 state.error_reply(Error{.code = "request.query",
                                         .where = "request",
                                         .wanted = "nothing, or request=ID of a reply",
                                         .found = "another query"}));
    return;
  }
  if (request.method == "HEAD") {
    state.answer(request, *exchange, HttpReply{.type = "text/event-stream; charset=utf-8"});
    return;
  }
  if (state.routing.full()) {
    state.answer(request, *exchange,
                 state.error_reply(Error{.code = "routing.full",
                                         .wanted = fmt::format("at most {} streams", ExpertCounters::kWatchers),
                                         .found = "more"}));
    return;
  }
  exchange->begin_stream(state.stream_headers(request));
  state.routing.watch(std::move(exchange), std::string(id), request.key);
  state.report_routing();
}

constexpr std::array kRoutes = {Route{.path = "/v1/routing", .method = "GET", .needs_model = true, .begin = routing}};

void describe(OpenApi& document) {
  Json& path = document.paths["/v1/routing"];
  path["get"] = get_operation("How many tokens each expert took, of all requests and of one, as it changes",
                              schema::ref("Event"), "text/event-stream");
  path["parameters"] = Json::array(
      {{{"name", "request"}, {"in", "query"}, {"description", "The id of a reply"}, {"schema", schema::text()}}});
}

}  // namespace

extern const Endpoint routing_endpoint{.routes = kRoutes, .describe = describe};

}  // namespace moracle::serve
