// POST /detokenize: the text of token ids, in vLLM's shape.
#include "serve/api/prepare.h"
#include "serve/endpoints/endpoint.h"
#include "serve/pending_request.h"
#include "serve/service_state.h"

namespace moracle::serve {

namespace {

void detokenize(ServiceState& state, HttpRequest&& request, std::shared_ptr<Exchange> exchange) {
  answer_on_worker(state, std::move(request), std::move(exchange), "detokenize", [&state](const RequestBody& body) {
    return detokenize_reply(body.fields, *state.model()->text,
                            [&state](const std::string& name) { return state.check_model(name); });
  });
}

constexpr std::array kRoutes = {
    Route{.path = "/detokenize", .method = "POST", .needs_model = true, .begin = detokenize}};

void describe(OpenApi& document) {
  document.schemas["DetokenizeRequest"] = schema::object({"tokens"}, {{"tokens", schema::token_ids()}});
  document.schemas["DetokenizeReply"] = schema::object({"prompt"}, {{"prompt", schema::text()}});
  document.paths["/detokenize"]["post"] =
      post_operation("The text of token ids", schema::ref("DetokenizeRequest"), schema::ref("DetokenizeReply"));
}

}  // namespace

extern const Endpoint detokenize_endpoint{.routes = kRoutes, .describe = describe};

}  // namespace moracle::serve
