// Replies in the words of an API: events in, JSON and server-sent events out. Each API has one translator.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "serve/engine/token_engine.h"
#include "text/reply/reply_event.h"
#include "text/tokenizer/tokenizer.h"

namespace moracle::serve {

// All parts of one reply share it.
struct ReplyHead {
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

// The part of a choice that was not reported yet; in a whole reply: all of it.
struct ChoiceUpdate {
  std::int64_t index = 0;
  std::vector<ReplyEvent> events{};
  std::vector<OwnedToken> scored{};  // tokens whose log-probabilities are wanted
  std::optional<std::vector<std::int32_t>> token_ids{};
  std::optional<std::vector<std::int32_t>> prompt_ids{};
  bool opens = false;  // nothing of it was reported before
};

struct TranslatorOptions {
  ReplyHead head;
  const Tokenizer* tokenizer = nullptr;
  std::int64_t top_logprobs = 0;  // of each scored token
  bool include_reasoning = true;  // of chats
  bool include_usage = false;     // behind the last choice of a stream
  bool continuous_usage = false;  // in each frame
  Json echoed{};                  // of the request
};

// Used for one reply, its choices' updates in order.
class ReplyTranslator {
 public:
  virtual ~ReplyTranslator() = default;
  // Server-sent events for an update of a stream; empty: it says nothing. `usage` is that so far,
  // read with TranslatorOptions::continuous_usage.
  [[nodiscard]] virtual std::string frames(const ChoiceUpdate& update, const ReplyUsage& usage) = 0;
  // Behind the last choice's end.
  [[nodiscard]] virtual std::string last_frames(const ReplyUsage& usage) = 0;
  // In place of the rest of a stream that fails; `body` is the error's JSON.
  [[nodiscard]] virtual std::string error_frame(const std::string& body) = 0;
  // The reply in one piece, every choice with its end.
  [[nodiscard]] virtual Json whole(std::span<const ChoiceUpdate> choices, const ReplyUsage& usage) = 0;
};

}  // namespace moracle::serve
