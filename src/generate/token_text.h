// The text of one reply while its tokens arrive: decoded, cut at stop texts, with the marks of its parts told apart.
// Each reply has its own, which one thread at a time uses; all share the tokenizer.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "generate/stop_texts.h"
#include "text/reply/reply_format.h"
#include "text/tokenizer/tokenizer.h"

namespace moracle {

class TokenText {
 public:
  struct Options {
    std::vector<std::string> stop{};
    bool include_stop = false;    // a stop text that was reached is part of the text
    std::int64_t min_tokens = 0;  // stop texts end nothing before
    bool skip_special_tokens = true;
    std::optional<ReplyFormat> format{};  // whose marks are told
  };
  // Gets text in whole characters, none of it empty, or a mark.
  using Emit = std::function<void(std::string_view text, bool is_mark)>;

  TokenText(const Tokenizer& tokenizer, Options options);

  // A token that is part of the text. What was held back is settled before a mark, whatever it might have begun.
  // Errors: those of DetokenizerStream.
  Result<> push(std::int32_t id, const Emit& emit);
  // No token follows. What was held back is settled.
  Result<> finish(const Emit& emit);

  [[nodiscard]] const StopTexts& stops() const { return stops_; }
  [[nodiscard]] std::int64_t tokens() const { return tokens_; }

 private:
  // Text that is decoded, through the stop texts.
  void settle(const std::string& piece, const Emit& emit);
  static void put(std::string_view text, const Emit& emit);

  Options options_;
  DetokenizerStream detokenizer_;
  StopTexts stops_;
  std::int64_t tokens_ = 0;
};

}  // namespace moracle
