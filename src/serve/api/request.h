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
#include "generate/model_text.h"
#include "generate/request.h"
#include "generate/sampling_fields.h"
#include "serve/api/body.h"
#include "serve/api/chat/places.h"
#include "serve/api/fields.h"
#include "serve/api/output/output_field.h"
#include "text/constrain/reply_rules.h"
#include "text/template/chat_templates.h"

namespace moracle::serve {

using PromptInput = std::variant<std::string, std::vector<std::int32_t>>;

struct PreparedPrompt {
  std::string text;  // of chats: rendered; of completions: as given, or decoded
  std::vector<std::int32_t> ids;
};

// As read_request() reads it from a body, and prepare_request() completes it.
struct ApiRequest : ReplyRules {
  GenerationApi kind = GenerationApi::chat;
  std::string model;  // empty: not given

  // Chat.
  ChatRequest chat{};
  bool include_reasoning = true;
  bool continue_final_message = false;
  // Completions.
  std::vector<PromptInput> inputs{};
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
  const char* prompt_field = "prompt";  // for errors of its length
  ChatPlaces places{};                  // of another API that was read as a chat
  Json echoed{};                        // what the API's replies repeat of the request; null: nothing

  std::vector<std::string> ignored{};  // names that nobody knows
  std::vector<std::string> changed{};  // places of messages that were mended

  // Prepared: templates and tokenizer have done their work.
  std::vector<PreparedPrompt> prompts{};
  std::vector<std::string> stop_texts{};  // the request's and the publisher's
  std::vector<StopToken> stop_tokens{};   // of these, what text never shows
  Request engine{};                       // all but prompt and seed, which differ by choice
  // The engine's request for one choice; `index` counts prompts times n.
  [[nodiscard]] Request engine_request(std::size_t index) const;

  // Prompts times n; a chat is one prompt.
  [[nodiscard]] std::size_t replies() const {
    return std::max<std::size_t>(inputs.size(), 1) * static_cast<std::size_t>(n);
  }
};

// `strict` refuses names that nobody knows and messages that must be mended. Errors: those of check_fields,
// read_messages and read_tool_use, "request.missing",
// "request.limit", "request.value", "request.type", "request.unsupported", each with the field.
Result<ApiRequest> read_request(GenerationApi api, RequestBody body, bool strict);

}  // namespace moracle::serve
