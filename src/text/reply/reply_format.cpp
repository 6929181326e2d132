#include "text/reply/reply_format.h"

#include <algorithm>
#include <array>

#include "text/reply/harmony.h"

namespace moracle {
namespace {

// As published: Qwen, DeepSeek, GLM, Kimi K2, MiniMax and most others; Seed-OSS; Magistral; Kimi-VL; Hunyuan;
// MiniMax M3; Cohere.
constexpr std::array kPairs = {ReasoningMarks{"<think>", "</think>"},
                               ReasoningMarks{"<seed:think>", "</seed:think>"},
                               ReasoningMarks{"[THINK]", "[/THINK]"},
                               ReasoningMarks{"◁think▷", "◁/think▷"},
                               ReasoningMarks{"<think:opensource>", "</think:opensource>"},
                               ReasoningMarks{"<mm:think>", "</mm:think>"},
                               ReasoningMarks{"<|START_THINKING|>", "<|END_THINKING|>"}};

}  // namespace

std::span<const ReasoningMarks> reasoning_marks() {
  return kPairs;
}

ReplyFormat ReplyFormat::of(const Tokenizer& tokenizer, std::string_view chat_template) {
  ReplyFormat format;
  const auto has_token = [&](std::string_view mark) { return tokenizer.token_to_id(mark).has_value(); };
  const auto written = [&](std::string_view mark) { return chat_template.find(mark) != std::string_view::npos; };
  const bool channels = (has_token(harmony::kChannel) && has_token(harmony::kMessage)) ||
                        (written(harmony::kChannel) && written(harmony::kMessage));
  std::vector<std::string_view> marks(harmony::kMarks.begin(), harmony::kMarks.end());
  if (channels) {
    format.kind_ = Kind::channels;
  } else {
    const auto by_token = [&](const ReasoningMarks& pair) { return has_token(pair.open) && has_token(pair.close); };
    const auto by_template = [&](const ReasoningMarks& pair) { return written(pair.open) || written(pair.close); };
    auto pair = std::find_if(kPairs.begin(), kPairs.end(), by_token);
    if (pair == kPairs.end()) pair = std::find_if(kPairs.begin(), kPairs.end(), by_template);
    if (pair == kPairs.end()) pair = kPairs.begin();
    format.open_ = pair->open;
    format.close_ = pair->close;
    marks = {pair->open, pair->close};
  }
  for (const std::string_view mark : marks) format.add_token(mark, &tokenizer);
  return format;
}

void ReplyFormat::add_token(std::string_view mark, const Tokenizer* tokenizer) {
  const auto id = tokenizer != nullptr ? tokenizer->token_to_id(mark) : std::nullopt;
  if (id && mark_of(*id).empty()) tokens_.emplace_back(*id, mark);
}

void ReplyFormat::read_calls(const CallSyntax& syntax, const Tokenizer* tokenizer) {
  calls_ = &syntax;
  if ((syntax.style == ArgumentStyle::channels) != (kind_ == Kind::channels)) {
    tokens_.clear();
    kind_ = syntax.style == ArgumentStyle::channels ? Kind::channels : Kind::think;
    if (kind_ == Kind::think) read_reasoning(kPairs.front(), tokenizer);
  }
  if (kind_ == Kind::channels) {
    for (const std::string_view mark : harmony::kMarks) add_token(mark, tokenizer);
  }
  // A piece of text that vocabularies have beside longer ones, as ">" beside ">\n", is no token of marks.
  const auto is_added = [tokenizer](std::string_view mark) {
    const auto added = tokenizer != nullptr ? tokenizer->has_control_token(mark, false) : Result<bool>(false);
    return added.ok() && *added;
  };
  for (const std::string_view mark : syntax.marks()) {
    if (is_added(mark)) add_token(mark, tokenizer);
  }
  if (!syntax.part.empty()) add_token(syntax.part, tokenizer);
}

void ReplyFormat::read_reasoning(ReasoningMarks marks, const Tokenizer* tokenizer) {
  if (kind_ == Kind::channels) return;
  std::erase_if(tokens_, [this](const auto& token) { return token.second == open_ || token.second == close_; });
  open_ = marks.open;
  close_ = marks.close;
  add_token(open_, tokenizer);
  add_token(close_, tokenizer);
}

std::string_view ReplyFormat::mark_of(std::int32_t id) const {
  const auto found =
      std::find_if(tokens_.begin(), tokens_.end(), [id](const auto& token) { return token.first == id; });
  return found == tokens_.end() ? std::string_view() : std::string_view(found->second);
}

std::optional<std::int32_t> ReplyFormat::token_of(std::string_view mark) const {
  const auto found =
      std::find_if(tokens_.begin(), tokens_.end(), [mark](const auto& token) { return token.second == mark; });
  return found == tokens_.end() ? std::nullopt : std::optional(found->first);
}

}  // namespace moracle
