#include "text/reply/reply_format.h"

#include <algorithm>
#include <array>

#include "text/reply/harmony.h"

namespace moracle {
namespace {

// As published: Qwen, DeepSeek, GLM, Kimi K2, MiniMax and most others; Seed-OSS; Magistral; Kimi-VL; Hunyuan;
// MiniMax M3; Solar Open 2; Cohere; Gemma 4; Kimi K3.
constexpr std::array kPairs = {
    ReasoningMarks{"<think>", "</think>"},
    ReasoningMarks{"<seed:think>", "</seed:think>"},
    ReasoningMarks{"[THINK]", "[/THINK]"},
    ReasoningMarks{"◁think▷", "◁/think▷"},
    ReasoningMarks{"<think:opensource>", "</think:opensource>"},
    ReasoningMarks{"<mm:think>", "</mm:think>"},
    ReasoningMarks{"<|think:start|>", "<|think:end|>"},
    ReasoningMarks{.open = "<|START_THINKING|>",
                   .close = "<|END_THINKING|>",
                   .beside = {"<|START_RESPONSE|>", "<|END_RESPONSE|>"}},
    ReasoningMarks{.open = "<|channel>thought", .close = "<channel|>", .parts = {"<|channel>"}},
    ReasoningMarks{.open = "<|open|>think<|sep|>",
                   .close = "<|close|>think<|sep|>",
                   .beside = {"<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"},
                   .parts = {"<|open|>", "<|sep|>", "<|close|>"}},
};

// Whether the tokenizer has the mark as a token, or as text around parts that are tokens.
bool has_mark(const Tokenizer& tokenizer, const ReasoningMarks& pair, std::string_view mark) {
  if (tokenizer.token_to_id(mark)) return true;
  return std::any_of(pair.parts.begin(), pair.parts.end(), [&](std::string_view part) {
    return !part.empty() && mark.find(part) != std::string_view::npos && tokenizer.token_to_id(part);
  });
}

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
  if (channels) {
    format.kind_ = Kind::channels;
    for (const std::string_view mark : harmony::kMarks) format.add_token(mark, &tokenizer);
    return format;
  }
  const auto by_token = [&](const ReasoningMarks& pair) {
    return has_mark(tokenizer, pair, pair.open) && has_mark(tokenizer, pair, pair.close);
  };
  const auto by_template = [&](const ReasoningMarks& pair) { return written(pair.open) || written(pair.close); };
  auto pair = std::find_if(kPairs.begin(), kPairs.end(), by_token);
  if (pair == kPairs.end()) pair = std::find_if(kPairs.begin(), kPairs.end(), by_template);
  if (pair == kPairs.end()) pair = kPairs.begin();
  format.add_reasoning(*pair, &tokenizer);
  return format;
}

void ReplyFormat::add_token(std::string_view mark, const Tokenizer* tokenizer) {
  const auto id = tokenizer != nullptr ? tokenizer->token_to_id(mark) : std::nullopt;
  if (id && mark_of(*id).empty()) tokens_.emplace_back(*id, mark);
}

void ReplyFormat::add_parts(std::span<const std::string_view> parts, const Tokenizer* tokenizer) {
  for (const std::string_view part : parts) {
    if (part.empty()) continue;
    add_token(part, tokenizer);
    if (is_token(part) && !is_part(part)) parts_.push_back(part);
  }
}

void ReplyFormat::add_reasoning(const ReasoningMarks& marks, const Tokenizer* tokenizer) {
  open_ = marks.open;
  close_ = marks.close;
  beside_.assign(marks.beside.begin(), std::find(marks.beside.begin(), marks.beside.end(), std::string_view()));
  add_token(open_, tokenizer);
  add_token(close_, tokenizer);
  for (const std::string_view mark : beside_) add_token(mark, tokenizer);
  add_parts(marks.parts, tokenizer);
}

bool ReplyFormat::is_part(std::string_view mark) const {
  return std::find(parts_.begin(), parts_.end(), mark) != parts_.end();
}

void ReplyFormat::read_calls(const CallSyntax& syntax, const Tokenizer* tokenizer) {
  calls_ = &syntax;
  if ((syntax.style == ArgumentStyle::channels) != (kind_ == Kind::channels)) {
    tokens_.clear();
    parts_.clear();
    beside_.clear();
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
  add_parts(syntax.parts, tokenizer);
}

void ReplyFormat::read_reasoning(ReasoningMarks marks, const Tokenizer* tokenizer) {
  if (kind_ == Kind::channels) return;
  std::erase_if(tokens_, [this](const auto& token) {
    return token.second == open_ || token.second == close_ ||
           std::find(beside_.begin(), beside_.end(), token.second) != beside_.end();
  });
  add_reasoning(marks, tokenizer);
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
