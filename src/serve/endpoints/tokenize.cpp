// POST /tokenize: token ids of a text or conversation, in vLLM's shape.
#include "serve/api/fields.h"
#include "serve/api/prepare.h"
#include "serve/endpoints/endpoint.h"
#include "serve/pending_request.h"
#include "serve/service_state.h"

namespace moracle::serve {

namespace {

void tokenize(ServiceState& state, HttpRequest&& request, std::shared_ptr<Exchange> exchange) {
  answer_on_worker(state, std::move(request), std::move(exchange), "tokenize", [&state](RequestBody body) {
    const ServedModel& model = *state.model();
    return tokenize_reply(std::move(body), *model.text, model.context,
                          [&state](const std::string& name) { return state.check_model(name); });
  });
}

constexpr std::array kRoutes = {Route{.path = "/tokenize", .method = "POST", .needs_model = true, .begin = tokenize}};

void describe(OpenApi& document) {
  document.schemas["TokenizeRequest"] = {
      {"type", "object"},
      {"properties",
       {{"prompt", schema::text()},
        {"messages", find_field("messages", GenerationApi::chat)->schema()},
        {"add_special_tokens", {{"type", "boolean"}}}}},
      {"anyOf", Json::array({{{"required", {"prompt"}}}, {{"required", {"messages"}}}})}};
  document.schemas["TokenizeReply"] = schema::object(
      {"tokens", "count", "max_model_len"},
      {{"tokens", schema::token_ids()}, {"count", schema::integer()}, {"max_model_len", schema::integer()}});
  document.paths["/tokenize"]["post"] = post_operation("Token ids of a text or conversation",
                                                       schema::ref("TokenizeRequest"), schema::ref("TokenizeReply"));
}

}  // namespace

extern const Endpoint tokenize_endpoint{.routes = kRoutes, .describe = describe};

}  // namespace moracle::serve
