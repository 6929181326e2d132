// One choice of a reply while its tokens arrive: from tokens to events.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "generate/token_text.h"
#include "text/reply/reply_event.h"
#include "text/reply/reply_reader.h"
#include "text/tokenizer/tokenizer.h"

namespace moracle::serve {

struct ReplyTextOptions {
  std::vector<std::string> stop{};
  bool include_stop = false;
  std::int64_t min_tokens = 0;  // stop texts end nothing before
  bool skip_special_tokens = true;
  std::optional<ReplyFormat> format{};  // reasoning is told from the answer
  std::string prompt{};                 // with `format`: shows where the reply begins
  CallOptions calls{};                  // of a format that reads them
  std::string echo{};                   // text in front of the first token's
};

class ReplyText {
 public:
  ReplyText(const Tokenizer& tokenizer, ReplyTextOptions options);

  // A token that is part of the text. What it resolved is added to the events. Errors: those of DetokenizerStream.
  Result<> push(std::int32_t id);
  // No token follows: what was held back is resolved. `cut`: by a limit.
  Result<> finish(bool cut = false);
  // Adds the last events: `rest` of the text, where it is not empty, and the end, which tells of calls.
  void end(EndEvent event, std::string rest);

  [[nodiscard]] bool stopped() const { return text_.stops().reached(); }
  // The reply has all calls that it may have.
  [[nodiscard]] bool has_last_call() const { return reader_ && reader_->ended(); }
  [[nodiscard]] const std::string& stop_text() const { return text_.stops().found(); }

  // Events since the last call; neighbours of one kind are one event.
  [[nodiscard]] std::vector<ReplyEvent> take_events() { return std::exchange(events_, {}); }
  [[nodiscard]] bool has_events() const { return !events_.empty(); }
  [[nodiscard]] std::int64_t reasoning_tokens() const { return reasoning_tokens_; }

 private:
  void add(ReplyEvent&& event);
  void count_tokens();
  [[nodiscard]] TokenText::Emit emit();

  std::optional<ReplyReader> reader_;
  TokenText text_;
  std::vector<ReplyEvent> events_;
  bool in_reasoning_ = false;
  std::int64_t begun_calls_ = 0;
  std::int64_t uncounted_tokens_ = 0;  // since text was resolved
  std::int64_t reasoning_tokens_ = 0;
};

}  // namespace moracle::serve
