#include "text/reply/reply_format.h"

#include <algorithm>
#include <array>

#include "text/reply/harmony.h"

namespace moracle {
namespace {

struct Pair {
  std::string_view open, close;
};
// As published: Qwen, DeepSeek, GLM, Kimi K2, MiniMax and most others; Seed-OSS; Magistral; Kimi-VL.
constexpr std::array kPairs = {Pair{"<think>", "</think>"}, Pair{"<seed:think>", "</seed:think>"},
                               Pair{"[THINK]", "[/THINK]"}, Pair{"◁think▷", "◁/think▷"}};
}  // namespace

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
    const auto by_token = [&](const Pair& pair) { return has_token(pair.open) && has_token(pair.close); };
    const auto by_template = [&](const Pair& pair) { return written(pair.open) || written(pair.close); };
    auto pair = std::find_if(kPairs.begin(), kPairs.end(), by_token);
    if (pair == kPairs.end()) pair = std::find_if(kPairs.begin(), kPairs.end(), by_template);
    if (pair == kPairs.end()) pair = kPairs.begin();
    format.open_ = pair->open;
    format.close_ = pair->close;
    marks = {pair->open, pair->close};
  }
  for (const std::string_view mark : marks) {
    if (const auto id = tokenizer.token_to_id(mark)) format.tokens_.emplace_back(*id, mark);
  }
  return format;
}

std::string_view ReplyFormat::mark_of(std::int32_t id) const {
  const auto found =
      std::find_if(tokens_.begin(), tokens_.end(), [id](const auto& token) { return token.first == id; });
  return found == tokens_.end() ? std::string_view() : std::string_view(found->second);
}

bool ReplyFormat::is_token(std::string_view mark) const {
  return std::any_of(tokens_.begin(), tokens_.end(), [mark](const auto& token) { return token.second == mark; });
}

}  // namespace moracle
