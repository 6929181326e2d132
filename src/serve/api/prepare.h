// From a request to what the engine is asked: templates, tokens, settings. Pure, on the worker.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "generate/model_text.h"
#include "generate/request.h"
#include "serve/api/request.h"
#include "text/constrain/model_outputs.h"

namespace moracle::serve {

// Whether requests may name this model.
using ModelCheck = std::function<Result<>(const std::string& name)>;

struct PrepareOptions {
  std::int64_t context = 0;
  std::uint64_t seed = 0;           // of requests without one
  std::int64_t max_replies = 0;     // of one request: what may wait; 0: no bound
  ModelOutputs* outputs = nullptr;  // holds replies to forms; null: no request may ask for that
  ModelCheck known{};               // before templates and tokens; empty: all are
};

// Completes a request but for hold_request(). Errors: those of `known`, of templates and tokenizer, "request.context",
// "request.limit" (max_replies), "request.value", "model.token", "sampling.range", "config.range".
Result<> prepare_request(ApiRequest& request, const ModelText& text, const PrepareOptions& options);

// Whether a completed request's replies are held to anything.
[[nodiscard]] bool is_held(const ApiRequest& request);
// Compiles what they are held to, which may take seconds. Errors: those of request_error().
Result<> hold_request(ApiRequest& request, const PrepareOptions& options);

// How many tokens a chat has before its reply. Errors: those of `known`, of templates and tokenizer.
Result<std::int64_t> count_chat_tokens(const ApiRequest& request, const ModelText& text, const ModelCheck& known);

// The answers to /tokenize and /detokenize. Errors: likewise, and those of read_request.
Result<Json> tokenize_reply(RequestBody body, const ModelText& text, std::int64_t context, const ModelCheck& known);
Result<Json> detokenize_reply(const Json& fields, const ModelText& text, const ModelCheck& known);

}  // namespace moracle::serve
