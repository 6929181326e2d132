// POST /v1/chat/completions: a conversation goes on.
#include "serve/api/chat_reply.h"
#include "serve/api/fields.h"
#include "serve/endpoints/endpoint.h"
#include "serve/generation.h"

namespace moracle::serve {

namespace {

Result<ApiRequest> read_chat(RequestBody body, bool strict) {
  return read_request(GenerationApi::chat, std::move(body), strict);
}

constexpr GenerationEndpoint kGeneration = {
    .id_prefix = "chatcmpl-", .read = read_chat, .translator = make_chat_translator};

constexpr std::array kRoutes = {Route{.path = "/v1/chat/completions",
                                      .method = "POST",
                                      .needs_model = true,
                                      .begin = begin_generation,
                                      .generation = &kGeneration}};

void describe(OpenApi& document) {
  const Json text = schema::text();
  const Json call =
      schema::object({"id", "type", "function"},
                     {{"id", text},
                      {"type", schema::words({"function"})},
                      {"function", schema::object({"name", "arguments"}, {{"name", text}, {"arguments", text}})}});
  document.schemas["ChatRequest"] = body_schema(GenerationApi::chat, "messages");
  document.schemas["ChatReply"] = schema::reply(schema::object(
      {"index", "message", "finish_reason"},
      {{"index", schema::integer()},
       {"message", schema::object({"role", "content"}, {{"role", text},
                                                        {"content", {{"type", Json::array({"string", "null"})}}},
                                                        {"tool_calls", {{"type", "array"}, {"items", call}}}})},
       {"finish_reason", schema::words({"stop", "length", "tool_calls"})}}));
  document.paths["/v1/chat/completions"]["post"] =
      post_operation("Continue a conversation", schema::ref("ChatRequest"), schema::ref("ChatReply"), true);
}

}  // namespace

extern const Endpoint chat_completions_endpoint{.routes = kRoutes, .describe = describe};

}  // namespace moracle::serve
