#include "serve/api/chat_reply.h"

#include <utility>

#include "serve/api/openai_frames.h"

namespace moracle::serve {

namespace {

// The bytes of a token; its text has marks where it is a part of a character.
Json bytes_of(const Tokenizer& tokenizer, std::int32_t id, const std::string& text) {
  const bool marked = text.find("\xEF\xBF\xBD") != std::string::npos;
  const auto bytes = marked ? tokenizer.bytes_of(id) : text;
  if (!bytes) return nullptr;
  Json numbers = Json::array();
  for (const char c : *bytes) numbers.push_back(static_cast<unsigned char>(c));
  return numbers;
}

class ChatTranslator final : public OpenAiTranslator {
 public:
  explicit ChatTranslator(TranslatorOptions options) : OpenAiTranslator(std::move(options), "chat.completion.chunk") {}

  std::string frames(const ChoiceUpdate& update, const ReplyUsage& usage) override {
    std::string out;
    if (update.opens) {
      Json choice = delta_json(update.index, nullptr, {{"role", "assistant"}, {"content", ""}}, nullptr);
      if (update.prompt_ids) choice["prompt_token_ids"] = *update.prompt_ids;
      out += frame(std::move(choice), usage);
    }
    const GatheredEvents events(update.events);
    Json delta = Json::object();
    if (!events.text.empty()) delta["content"] = events.text;
    if (options().include_reasoning && !events.reasoning.empty())
      delta["reasoning"] = delta["reasoning_content"] = events.reasoning;
    if (!events.calls.empty()) delta["tool_calls"] = events.calls;
    if (!delta.empty() || !update.scored.empty() || (update.token_ids && !update.token_ids->empty())) {
      Json choice = delta_json(update.index, logprobs(update), std::move(delta), nullptr);
      if (update.token_ids) choice["token_ids"] = *update.token_ids;
      out += frame(std::move(choice), usage);
    }
    if (events.end != nullptr) out += frame(delta_json(update.index, nullptr, Json::object(), events.end), usage);
    return out;
  }

  Json whole(std::span<const ChoiceUpdate> choices, const ReplyUsage& usage) override {
    Json list = Json::array();
    for (const ChoiceUpdate& update : choices) {
      const GatheredEvents events(update.events);
      Json choice = choice_json(update.index, logprobs(update), events.end);
      const Json calls = whole_calls(update.events, events.end);
      const bool silent = !calls.empty() && events.text.empty();
      choice["message"] = {
          {"role", "assistant"}, {"content", silent ? Json(nullptr) : Json(events.text)}, {"refusal", nullptr}};
      if (options().include_reasoning) {
        const Json reasoning = events.reasoning.empty() ? Json(nullptr) : Json(events.reasoning);
        choice["message"]["reasoning"] = reasoning;
        choice["message"]["reasoning_content"] = reasoning;
      }
      if (!calls.empty()) choice["message"]["tool_calls"] = calls;
      if (update.token_ids) choice["token_ids"] = *update.token_ids;
      if (update.prompt_ids) choice["prompt_token_ids"] = *update.prompt_ids;
      list.push_back(std::move(choice));
    }
    return reply_json("chat.completion", std::move(list), usage);
  }

 private:
  static Json delta_json(std::int64_t index, Json logprobs, Json delta, const EndEvent* end) {
    Json choice = choice_json(index, std::move(logprobs), end);
    choice["delta"] = std::move(delta);
    return choice;
  }

  // {"content": [{"token", "logprob", "bytes", "top_logprobs"}], "refusal": null}
  [[nodiscard]] Json logprobs(const ChoiceUpdate& update) const {
    if (update.scored.empty()) return nullptr;
    const Tokenizer& tokenizer = *options().tokenizer;
    const auto entry = [&](std::int32_t id, double logprob) -> Json {
      const std::string text = token_text(tokenizer, id);
      return {{"token", text}, {"logprob", finite_logprob(logprob)}, {"bytes", bytes_of(tokenizer, id, text)}};
    };
    Json content = Json::array();
    for (const OwnedToken& token : update.scored) {
      Json item = entry(token.id, token.logprob.value_or(0.0));
      Json others = Json::array();
      for (const TokenLogprob& other : token.top) {
        if (std::ssize(others) < options().top_logprobs) others.push_back(entry(other.id, other.logprob));
      }
      item["top_logprobs"] = std::move(others);
      content.push_back(std::move(item));
    }
    return {{"content", std::move(content)}, {"refusal", nullptr}};
  }

  // The calls of a reply in one piece, each with its name and all of its arguments; one that is cut is left out.
  static Json whole_calls(std::span<const ReplyEvent> events, const EndEvent* end) {
    Json calls = Json::array();
    for (const ReplyEvent& event : events) {
      if (const auto* const start = std::get_if<CallStartEvent>(&event)) {
        calls.push_back(
            {{"id", start->id}, {"type", "function"}, {"function", {{"name", start->name}, {"arguments", ""}}}});
      } else if (const auto* const piece = std::get_if<CallArgumentsEvent>(&event)) {
        calls[static_cast<std::size_t>(piece->index)]["function"]["arguments"].get_ref<std::string&>() += piece->text;
      }
    }
    if (end != nullptr && end->in_call && !calls.empty()) calls.erase(calls.size() - 1);
    return calls;
  }
};

}  // namespace

std::unique_ptr<ReplyTranslator> make_chat_translator(TranslatorOptions options) {
  return std::make_unique<ChatTranslator>(std::move(options));
}

}  // namespace moracle::serve
