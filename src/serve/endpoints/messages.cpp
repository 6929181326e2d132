// POST /v1/messages and /v1/messages/count_tokens: a conversation goes on, or is counted, as Anthropic's clients ask.
#include "serve/api/anthropic.h"
#include "serve/api/prepare.h"
#include "serve/endpoints/endpoint.h"
#include "serve/generation.h"
#include "serve/pending_request.h"
#include "serve/service_state.h"

namespace moracle::serve {

namespace {

constexpr GenerationEndpoint kGeneration = {
    .id_prefix = "msg_", .read = read_anthropic_request, .translator = make_anthropic_translator};

void count_tokens(ServiceState& state, HttpRequest&& request, std::shared_ptr<Exchange> exchange) {
  answer_on_worker(
      state, std::move(request), std::move(exchange), "count tokens", [&state](RequestBody body) -> Result<Json> {
        MORACLE_ASSIGN(const ApiRequest asked, read_anthropic_request(std::move(body), state.options.strict));
        const auto known = [&state](const std::string& name) { return state.check_model(name); };
        MORACLE_ASSIGN(const std::int64_t count, count_chat_tokens(asked, *state.model()->text, known));
        return Json{{"input_tokens", count}};
      });
}

constexpr std::array kRoutes = {Route{.path = "/v1/messages",
                                      .method = "POST",
                                      .needs_model = true,
                                      .begin = begin_generation,
                                      .generation = &kGeneration,
                                      .error_body = anthropic_error_body},
                                Route{.path = "/v1/messages/count_tokens",
                                      .method = "POST",
                                      .needs_model = true,
                                      .begin = count_tokens,
                                      .error_body = anthropic_error_body}};

Json operation(std::string_view summary, Json reply, bool streams) {
  Json operation = post_operation(summary, schema::ref("AnthropicRequest"), std::move(reply), streams);
  for (auto& [status, response] : operation["responses"].items()) {
    if (status != "200") response["content"]["application/json"]["schema"] = schema::ref("AnthropicError");
  }
  return operation;
}

void describe(OpenApi& document) {
  const Json text = schema::text();
  const Json number = schema::integer();
  const Json block = schema::object({"type"}, {{"type", schema::words({"text", "thinking", "tool_use"})}});
  document.schemas["AnthropicRequest"] = body_schema(GenerationApi::anthropic, "messages");
  document.schemas["AnthropicReply"] =
      schema::object({"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"},
                     {{"id", text},
                      {"type", schema::words({"message"})},
                      {"role", schema::words({"assistant"})},
                      {"model", text},
                      {"content", schema::list_of(block)},
                      {"stop_reason", schema::words({"end_turn", "max_tokens", "stop_sequence", "tool_use"})},
                      {"stop_sequence", {{"type", Json::array({"string", "null"})}}},
                      {"usage", schema::object({"input_tokens", "output_tokens", "cache_read_input_tokens"},
                                               {{"input_tokens", number},
                                                {"output_tokens", number},
                                                {"cache_creation_input_tokens", number},
                                                {"cache_read_input_tokens", number}})}});
  document.schemas["AnthropicError"] = schema::object(
      {"type", "error"},
      {{"type", schema::words({"error"})},
       {"error", schema::object({"type", "message"}, {{"type", text}, {"message", text}, {"param", text}})}});
  document.paths["/v1/messages"]["post"] =
      operation("Continue a conversation, in the shapes of Anthropic", schema::ref("AnthropicReply"), true);
  document.paths["/v1/messages/count_tokens"]["post"] =
      operation("Count a conversation's tokens", schema::object({"input_tokens"}, {{"input_tokens", number}}), false);
}

}  // namespace

extern const Endpoint messages_endpoint{.routes = kRoutes, .describe = describe};

}  // namespace moracle::serve
