// How a model marks the parts of its replies. It is made once at load, and constant from then on: readers on every
// thread share it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/reply/call_syntax.h"
#include "text/tokenizer/tokenizer.h"

namespace moracle {

// Around reasoning, and what stands around the answer, which is none of it.
struct ReasoningMarks {
  std::string_view open, close;
  std::array<std::string_view, 3> beside{};
  std::array<std::string_view, 3> parts{};  // of these marks; where they are tokens, marks are text with them
};
// Pairs that published models write.
[[nodiscard]] std::span<const ReasoningMarks> reasoning_marks();

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
  // Marks beside the answer, which are left out of it.
  [[nodiscard]] std::span<const std::string_view> beside() const { return beside_; }

  // Calls of tools are read, too, whose marks the tokenizer may have as tokens. Harmony has its own kind.
  // Null: all are found in text.
  void read_calls(const CallSyntax& syntax, const Tokenizer* tokenizer = nullptr);
  // Null: a call is text.
  [[nodiscard]] const CallSyntax* calls() const { return calls_; }
  // Reasoning between these marks.
  void read_reasoning(ReasoningMarks marks, const Tokenizer* tokenizer = nullptr);

  // The mark that a token is; empty: none. A mark that is a token counts as that token alone, so that a reply may spell
  // it out; the others are found in text.
  [[nodiscard]] std::string_view mark_of(std::int32_t id) const;
  [[nodiscard]] bool is_token(std::string_view mark) const { return token_of(mark).has_value(); }
  [[nodiscard]] std::optional<std::int32_t> token_of(std::string_view mark) const;
  // Whether the mark, which is a token, is text of longer marks.
  [[nodiscard]] bool is_part(std::string_view mark) const;
  [[nodiscard]] std::span<const std::string_view> parts() const { return parts_; }

  // Whether marks are tokens: the model was made to write them.
  [[nodiscard]] bool has_tokens() const { return !tokens_.empty(); }

 private:
  void add_token(std::string_view mark, const Tokenizer* tokenizer);
  void add_parts(std::span<const std::string_view> parts, const Tokenizer* tokenizer);
  void add_reasoning(const ReasoningMarks& marks, const Tokenizer* tokenizer);

  Kind kind_ = Kind::think;
  std::string open_ = "<think>";
  std::string close_ = "</think>";
  std::vector<std::string_view> beside_;
  std::vector<std::string_view> parts_;
  const CallSyntax* calls_ = nullptr;
  std::vector<std::pair<std::int32_t, std::string>> tokens_;
};

}  // namespace moracle
