// Holds the answer of a reply to a grammar, and leaves the reasoning in front of it free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/constrain/constraint.h"
#include "text/constrain/grammar/grammar_compiler.h"
#include "text/reply/reply_format.h"
#include "text/tokenizer/tokenizer.h"

namespace moracle {

// What is known of a model's replies.
struct ReplyVocabulary {
  std::vector<std::string> texts{};    // the bytes that each token adds to a text, by id; empty: none
  std::vector<std::int32_t> spaces{};  // tokens of white space alone
  ReplyFormat format{};
  std::optional<std::int32_t> open{}, close{};  // around reasoning, where they are tokens
  std::vector<std::int32_t> call_marks{};       // those of calls that are tokens

  // Of harmony: its marks, and grammars of what stands between them.
  struct Channels {
    std::int32_t start = 0, channel = 0, message = 0, end = 0;
    std::vector<std::int32_t> marks{};
    std::shared_ptr<const ConstraintSource> role{}, name{};
  };
  std::optional<Channels> channels{};

  // Empty: the token adds none, or there is none of that id.
  [[nodiscard]] std::string_view text_of(std::int32_t id) const {
    const auto at = static_cast<std::size_t>(id);
    return id >= 0 && at < texts.size() ? std::string_view(texts[at]) : std::string_view();
  }
};

// The parts of a reply, one of which each token belongs to.
enum class ReplyStage : std::uint8_t {
  choose,     // reasoning may open, or the answer begins
  reasoning,  // think: until the closing mark
  lead,       // white space may stand before the answer
  opened,     // channels: a channel must be named
  name,       // channels: its name
  thought,    // channels: the body of another channel than the answer's
  between,    // channels: a message must begin
  role,       // channels: its role
  answer,
};

// Where a reply to the prompt begins.
[[nodiscard]] ReplyStage first_stage(const ReplyVocabulary& vocabulary, std::string_view prompt);

// The bytes of all tokens that a reply's text may have: of no special one, and of none that is a mark.
[[nodiscard]] std::vector<std::string> reply_texts(const Tokenizer& tokenizer, const ReplyFormat& format);
// Errors: those of GrammarCompiler::compile; "constrain.reply": a format whose marks are no tokens of the model.
Result<std::shared_ptr<const ReplyVocabulary>> reply_vocabulary(const Tokenizer& tokenizer, const ReplyFormat& format,
                                                                GrammarCompiler& compiler);

// Of replies to `prompt`, whose answers `answer` holds.
[[nodiscard]] std::shared_ptr<const ConstraintSource> hold_answer(std::shared_ptr<const ReplyVocabulary> vocabulary,
                                                                  std::shared_ptr<const ConstraintSource> answer,
                                                                  std::string_view prompt);

}  // namespace moracle
