// The common ground of OpenAI's two APIs, chat and completions.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "serve/api/reply_translator.h"

namespace moracle::serve {

// {"id", "object", "created", "model", "system_fingerprint", "seed"}
[[nodiscard]] Json head_json(const ReplyHead& head, const char* object);
[[nodiscard]] Json usage_json(const ReplyUsage& usage);

// {"index", "logprobs", "finish_reason", "stop_reason"}; logprobs are null without.
[[nodiscard]] Json choice_json(std::int64_t index, Json logprobs, const EndEvent* end);
// The text and reasoning of events, joined, and their end; null: there is none.
struct GatheredEvents {
  explicit GatheredEvents(std::span<const ReplyEvent> events);
  std::string text, reasoning;
  Json calls = Json::array();  // {"index", "id", "type", "function": {"name", "arguments"}}, as a delta has them
  const EndEvent* end = nullptr;
};

// A log-probability that JSON can hold, which has no infinity.
[[nodiscard]] double finite_logprob(double logprob);
// A token as text; empty: it has none.
[[nodiscard]] std::string token_text(const Tokenizer& tokenizer, std::int32_t id);

// Frames of either API.
class OpenAiTranslator : public ReplyTranslator {
 public:
  OpenAiTranslator(TranslatorOptions options, const char* frame_object)
      : options_(std::move(options)), frame_object_(frame_object) {}

  std::string last_frames(const ReplyUsage& usage) override;
  std::string error_frame(const std::string& body) override;

 protected:
  [[nodiscard]] const TranslatorOptions& options() const { return options_; }
  // With usage: a member of that name, null but where each frame has it.
  [[nodiscard]] std::string frame(Json choice, const ReplyUsage& usage) const;
  [[nodiscard]] Json reply_json(const char* object, Json choices, const ReplyUsage& usage) const;

 private:
  TranslatorOptions options_;
  const char* frame_object_;
};

}  // namespace moracle::serve
