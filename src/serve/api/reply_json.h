// Replies and stream frames, in the shapes that OpenAI's clients index.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "serve/api/fields.h"
#include "serve/token_engine.h"
#include "text/tokenizer/tokenizer.h"

namespace moracle::serve {

// What all frames of one reply share.
struct ReplyHead {
  Endpoint endpoint = Endpoint::chat;
  std::string id;  // "chatcmpl-..."
  std::string model;
  std::string fingerprint;
  std::int64_t created = 0;  // seconds since 1970
  std::int64_t seed = 0;
};

struct ReplyUsage {
  std::int64_t prompt = 0;
  std::int64_t completion = 0;
  std::int64_t cached = 0;
  std::int64_t reasoning = 0;
};

// How a choice ended.
struct ReplyEnd {
  std::string reason{};  // "stop", "length"
  Json stop_reason{};    // the text or id that ended it; null: an end token, or none
};

// A choice, whole or the part of it that a frame tells.
struct ReplyPiece {
  std::int64_t index = 0;
  std::string text{};       // the answer
  std::string reasoning{};  // of chats
  Json logprobs{};          // null: not asked for
  std::optional<std::vector<std::int32_t>> token_ids{};
  std::optional<std::vector<std::int32_t>> prompt_ids{};
  std::optional<ReplyEnd> end{};
  bool opens = false;  // of streamed chats: the frame with the role
};

[[nodiscard]] Json usage_json(const ReplyUsage& usage);
// The whole reply.
[[nodiscard]] Json reply_json(const ReplyHead& head, std::span<const ReplyPiece> choices, const ReplyUsage& usage,
                              bool include_reasoning);
// One frame of a stream. With `with_usage` a member "usage" is there: null where `usage` is empty.
[[nodiscard]] Json frame_json(const ReplyHead& head, const ReplyPiece& piece, bool with_usage,
                              const std::optional<ReplyUsage>& usage);
// The frame behind the last choice.
[[nodiscard]] Json usage_frame_json(const ReplyHead& head, const ReplyUsage& usage);

// "data: ...\n\n"
[[nodiscard]] std::string event_of(const Json& json);
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

// {"content": [{"token", "logprob", "bytes", "top_logprobs"}], "refusal": null}
[[nodiscard]] Json chat_logprobs(const Tokenizer& tokenizer, std::span<const HeldToken> tokens, std::int64_t top);
// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}; `offset` is the first token's place in the text, in
// characters, and becomes that behind the last.
[[nodiscard]] Json completion_logprobs(const Tokenizer& tokenizer, std::span<const HeldToken> tokens, std::int64_t top,
                                       std::int64_t& offset);

}  // namespace moracle::serve
