// A generation request, read from its body.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "generate/sampling_fields.h"
#include "serve/api/fields.h"
#include "text/template/chat_templates.h"

namespace moracle::serve {

using PromptInput = std::variant<std::string, std::vector<std::int32_t>>;

struct ApiRequest {
  Endpoint endpoint = Endpoint::chat;
  std::string model;  // empty: not given

  // Chat.
  ChatRequest chat{};
  bool include_reasoning = true;
  bool continue_final_message = false;
  // Completions.
  std::vector<PromptInput> prompts{};
  bool echo = false;

  // Both. What is unset is the publisher's choice.
  std::optional<bool> add_special_tokens{};  // completions have them, chats have what the template writes
  SamplingChoice sampling{};
  std::optional<std::int64_t> max_tokens{};
  std::int64_t min_tokens = 0;
  std::optional<std::uint64_t> seed{};
  std::int64_t n = 1;
  std::vector<std::string> stop{};
  std::vector<std::int32_t> stop_token_ids{};
  bool include_stop = false;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  std::vector<std::pair<std::int32_t, float>> logit_bias{};
  std::optional<std::int64_t> logprobs{};  // how many likeliest tokens beside each
  bool return_token_ids = false;
  std::string cache_salt{};
  std::int64_t priority = 0;
  std::string request_id{};
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;

  std::vector<std::string> ignored{};  // names that nobody knows

  // Prompts times n; a chat is one prompt.
  [[nodiscard]] std::size_t replies() const {
    return std::max<std::size_t>(prompts.size(), 1) * static_cast<std::size_t>(n);
  }
};

// A JSON object of a request. Errors: "request.too_large", "request.invalid_utf8" (bytes, a lone surrogate, NUL; with
// the byte), "request.invalid_json", "request.limit" (depth, values).
Result<Json> parse_body(std::string_view body);

// `strict` refuses names that nobody knows. Errors: those of parse_body and check_fields, "request.missing",
// "request.limit", "request.value", "request.type", "request.unsupported", each with the field.
Result<ApiRequest> parse_request(Endpoint endpoint, std::string_view body, bool strict);

// The messages of a body, checked: text parts are joined, arguments of calls are objects. Errors as above.
Result<OrderedJson> parse_messages(std::string_view body);

}  // namespace moracle::serve
