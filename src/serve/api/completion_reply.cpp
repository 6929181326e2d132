#include "serve/api/completion_reply.h"

#include <algorithm>
#include <utility>

#include "base/unicode/utf8.h"
#include "serve/api/openai_frames.h"

namespace moracle::serve {

namespace {

// A text has neither reasoning nor calls: where no parts are told apart, no event is of them.
class CompletionTranslator final : public OpenAiTranslator {
 public:
  explicit CompletionTranslator(TranslatorOptions options) : OpenAiTranslator(std::move(options), "text_completion") {}

  std::string frames(const ChoiceUpdate& update, const ReplyUsage& usage) override {
    std::string out;
    if (update.opens && update.prompt_ids) {
      Json choice = text_json(update.index, nullptr, "", nullptr);
      choice["prompt_token_ids"] = *update.prompt_ids;
      out += frame(std::move(choice), usage);
    }
    const GatheredEvents events(update.events);
    if (!events.text.empty() || !update.scored.empty() || (update.token_ids && !update.token_ids->empty())) {
      Json choice = text_json(update.index, logprobs(update), events.text, nullptr);
      if (update.token_ids) choice["token_ids"] = *update.token_ids;
      out += frame(std::move(choice), usage);
    }
    if (events.end != nullptr) out += frame(text_json(update.index, nullptr, "", events.end), usage);
    return out;
  }

  Json whole(std::span<const ChoiceUpdate> choices, const ReplyUsage& usage) override {
    Json list = Json::array();
    for (const ChoiceUpdate& update : choices) {
      const GatheredEvents events(update.events);
      Json choice = text_json(update.index, logprobs(update), events.text, events.end);
      if (update.token_ids) choice["token_ids"] = *update.token_ids;
      if (update.prompt_ids) choice["prompt_token_ids"] = *update.prompt_ids;
      list.push_back(std::move(choice));
    }
    return reply_json("text_completion", std::move(list), usage);
  }

 private:
  static Json text_json(std::int64_t index, Json logprobs, const std::string& text, const EndEvent* end) {
    Json choice = choice_json(index, std::move(logprobs), end);
    choice["text"] = text;
    return choice;
  }

  // {"tokens", "token_logprobs", "top_logprobs", "text_offset"}; offsets are in characters of the choice's text.
  Json logprobs(const ChoiceUpdate& update) {
    if (update.scored.empty()) return nullptr;
    const Tokenizer& tokenizer = *options().tokenizer;
    const auto place = static_cast<std::size_t>(update.index);
    if (offsets_.size() <= place) offsets_.resize(place + 1);
    Json texts = Json::array();
    Json own = Json::array();
    Json tops = Json::array();
    Json offsets = Json::array();
    for (const OwnedToken& token : update.scored) {
      std::string text = token_text(tokenizer, token.id);
      offsets.push_back(offsets_[place]);
      offsets_[place] += static_cast<std::int64_t>(unicode::count_points(text));
      own.push_back(token.logprob ? Json(finite_logprob(*token.logprob)) : Json(nullptr));
      tops.push_back(token.logprob ? likeliest(token, text) : Json(nullptr));
      texts.push_back(std::move(text));
    }
    return {{"tokens", std::move(texts)},
            {"token_logprobs", std::move(own)},
            {"top_logprobs", std::move(tops)},
            {"text_offset", std::move(offsets)}};
  }

  // By text: of tokens that spell alike the likeliest.
  [[nodiscard]] Json likeliest(const OwnedToken& token, const std::string& text) const {
    Json likeliest = Json::object();
    const auto listed = std::min(token.top.size(), static_cast<std::size_t>(options().top_logprobs));
    for (std::size_t i = listed; i-- > 0;)
      likeliest[token_text(*options().tokenizer, token.top[i].id)] = finite_logprob(token.top[i].logprob);
    if (!likeliest.contains(text)) likeliest[text] = finite_logprob(*token.logprob);
    return likeliest;
  }

  std::vector<std::int64_t> offsets_;  // of each choice's next scored token
};

}  // namespace

std::unique_ptr<ReplyTranslator> make_completion_translator(TranslatorOptions options) {
  return std::make_unique<CompletionTranslator>(std::move(options));
}

}  // namespace moracle::serve
