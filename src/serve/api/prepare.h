// From a request's body to what the engine is asked: templates, tokens, settings. Pure, on the preparing thread.
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

namespace moracle::serve {

struct PreparedPrompt {
  std::string text;  // of chats: rendered; of completions: as given, or decoded
  std::vector<std::int32_t> ids;
};

struct PreparedRequest {
  ApiRequest api;
  std::vector<PreparedPrompt> prompts;
  std::vector<std::string> stop_texts;   // the request's and the publisher's
  std::vector<StopToken> stop_tokens{};  // of these, what text never shows
  std::uint64_t seed = 0;
  Request request{};  // all but prompt and seed, which differ by choice

  // Of one choice; `index` counts prompts times n.
  [[nodiscard]] Request engine_request(std::size_t index) const;
};

struct PrepareOptions {
  std::int64_t context = 0;
  bool strict = false;
  std::uint64_t seed = 0;        // of requests without one
  std::int64_t max_replies = 0;  // of one request: what may wait; 0: no bound
};

// Errors: those of parse_request, of templates and tokenizer, "request.context", "request.limit" (max_replies),
// "model.token", "sampling.range".
Result<PreparedRequest> prepare_request(Endpoint endpoint, std::string_view body, const ModelText& text,
                                        const PrepareOptions& options);

// Whether requests may name this model.
using ModelCheck = std::function<Result<>(const std::string& name)>;

// The answers to /tokenize and /detokenize. Errors: likewise, and those of `known`.
Result<Json> tokenize_reply(std::string_view body, const ModelText& text, std::int64_t context,
                            const ModelCheck& known);
Result<Json> detokenize_reply(std::string_view body, const ModelText& text, const ModelCheck& known);

}  // namespace moracle::serve
