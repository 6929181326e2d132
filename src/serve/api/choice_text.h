// The text of one reply while its tokens arrive.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "generate/token_text.h"
#include "text/reply/reply_reader.h"
#include "text/tokenizer/tokenizer.h"

namespace moracle::serve {

struct ChoiceTextOptions {
  std::vector<std::string> stop{};
  bool include_stop = false;
  std::int64_t min_tokens = 0;  // stop texts end nothing before
  bool skip_special_tokens = true;
  std::optional<ReplyFormat> format{};  // parts are told apart
  std::string prompt{};                 // with `format`: tells where the reply begins
};

class ChoiceText {
 public:
  ChoiceText(const Tokenizer& tokenizer, ChoiceTextOptions options);

  // A token that is part of the text. What it settled is appended to answer() and reasoning(). Errors: those of
  // DetokenizerStream.
  Result<> push(std::int32_t id);
  // No token follows. What was held back is settled.
  Result<> finish();

  [[nodiscard]] bool stopped() const { return text_.stops().reached(); }
  [[nodiscard]] const std::string& stop_text() const { return text_.stops().found(); }

  // What is settled and was not taken yet, in whole characters.
  std::string take_answer() { return std::exchange(parts_[1], {}); }
  std::string take_reasoning() { return std::exchange(parts_[0], {}); }
  [[nodiscard]] bool has_text() const { return !parts_[0].empty() || !parts_[1].empty(); }
  [[nodiscard]] std::int64_t tokens() const { return text_.tokens(); }
  [[nodiscard]] std::int64_t reasoning_tokens() const { return reasoning_tokens_; }

 private:
  void put(ReplyPart part, std::string_view text);
  [[nodiscard]] ReplyReader::Emit emit_part();
  [[nodiscard]] TokenText::Emit emit();

  std::optional<ReplyReader> reader_;
  TokenText text_;
  std::array<std::string, 2> parts_;  // by ReplyPart
  ReplyPart part_ = ReplyPart::answer;
  std::int64_t untold_tokens_ = 0;  // since text was settled
  std::int64_t reasoning_tokens_ = 0;
};

}  // namespace moracle::serve
