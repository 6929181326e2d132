// POST /v1/responses: a conversation goes on, as clients of OpenAI's responses ask. Nothing is stored.
#include "serve/api/responses.h"

#include "serve/endpoints/endpoint.h"
#include "serve/generation.h"

namespace moracle::serve {

namespace {

constexpr GenerationEndpoint kGeneration = {
    .id_prefix = "resp_", .read = read_responses_request, .translator = make_responses_translator};

constexpr std::array kRoutes = {Route{.path = "/v1/responses",
                                      .method = "POST",
                                      .needs_model = true,
                                      .begin = begin_generation,
                                      .generation = &kGeneration}};

void describe(OpenApi& document) {
  const Json text = schema::text();
  const Json number = schema::integer();
  document.schemas["ResponsesRequest"] = body_schema(GenerationApi::responses, "input");
  document.schemas["ResponsesReply"] = schema::object(
      {"id", "object", "created_at", "model", "status", "output", "usage", "store"},
      {{"id", text},
       {"object", schema::words({"response"})},
       {"created_at", number},
       {"model", text},
       {"status", schema::words({"completed", "incomplete"})},
       {"output",
        schema::list_of(schema::object(
            {"id", "type"}, {{"id", text}, {"type", schema::words({"message", "reasoning", "function_call"})}}))},
       {"store", {{"const", false}}},
       {"usage", schema::object({"input_tokens", "output_tokens", "total_tokens"},
                                {{"input_tokens", number}, {"output_tokens", number}, {"total_tokens", number}})}});
  document.paths["/v1/responses"]["post"] =
      post_operation("Continue a conversation, in the shapes of OpenAI's responses", schema::ref("ResponsesRequest"),
                     schema::ref("ResponsesReply"), true);
}

}  // namespace

extern const Endpoint responses_endpoint{.routes = kRoutes, .describe = describe};

}  // namespace moracle::serve
