// How a model marks the parts of its replies.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace moracle {

class ReplyFormat {
 public:
  enum class Kind : std::uint8_t {
    think,     // reasoning between two marks, "<think>" and "</think>", then the answer
    channels,  // harmony: "<|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>..."
  };

  // Reasoning between "<think>" and "</think>", found in text.
  ReplyFormat() = default;
  // By the marks that the tokenizer has as tokens, else by those that the chat template writes. An empty template:
  // none.
  static ReplyFormat of(const Tokenizer& tokenizer, std::string_view chat_template);

  [[nodiscard]] Kind kind() const { return kind_; }
  // Of Kind::think.
  [[nodiscard]] const std::string& open() const { return open_; }
  [[nodiscard]] const std::string& close() const { return close_; }

  // The mark that a token is; empty: none. A mark that is a token counts as that token alone, so that a reply may spell
  // it out; the others are found in text.
  [[nodiscard]] std::string_view mark_of(std::int32_t id) const;
  [[nodiscard]] bool is_token(std::string_view mark) const;

  // Whether marks are tokens: the model was made to write them.
  [[nodiscard]] bool has_tokens() const { return !tokens_.empty(); }

 private:
  Kind kind_ = Kind::think;
  std::string open_ = "<think>";
  std::string close_ = "</think>";
  std::vector<std::pair<std::int32_t, std::string>> tokens_;
};

}  // namespace moracle
