// POST /v1/completions: a text goes on.
#include "serve/api/completion_reply.h"
#include "serve/api/fields.h"
#include "serve/endpoints/endpoint.h"
#include "serve/generation.h"

namespace moracle::serve {

namespace {

Result<ApiRequest> read_completion(RequestBody body, bool strict) {
  return read_request(GenerationApi::completions, std::move(body), strict);
}

constexpr GenerationEndpoint kGeneration = {
    .id_prefix = "cmpl-", .read = read_completion, .translator = make_completion_translator};

constexpr std::array kRoutes = {Route{.path = "/v1/completions",
                                      .method = "POST",
                                      .needs_model = true,
                                      .begin = begin_generation,
                                      .generation = &kGeneration}};

void describe(OpenApi& document) {
  document.schemas["CompletionRequest"] = body_schema(GenerationApi::completions, "prompt");
  document.schemas["CompletionReply"] = schema::reply(schema::object(
      {"index", "text", "finish_reason"},
      {{"index", schema::integer()}, {"text", schema::text()}, {"finish_reason", schema::words({"stop", "length"})}}));
  document.paths["/v1/completions"]["post"] =
      post_operation("Continue a text", schema::ref("CompletionRequest"), schema::ref("CompletionReply"), true);
}

}  // namespace

extern const Endpoint completions_endpoint{.routes = kRoutes, .describe = describe};

}  // namespace moracle::serve
