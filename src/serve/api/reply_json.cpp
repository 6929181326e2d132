#include "serve/api/reply_json.h"

#include <algorithm>

#include "base/unicode/utf8.h"
#include "serve/api/api_error.h"

namespace moracle::serve {

namespace {

std::string token_text(const Tokenizer& tokenizer, std::int32_t id) {
  auto text = tokenizer.decode({&id, 1}, false);
  return text.ok() ? *std::move(text) : std::string();
}

// A log-probability that JSON can hold: it has no infinity.
double finite(double logprob) {
  return std::max(logprob, -9999.0);
}

// Of a token and its text, which has marks where it is a part of a character.
Json bytes_of(const Tokenizer& tokenizer, std::int32_t id, const std::string& text) {
  const bool marked = text.find("\xEF\xBF\xBD") != std::string::npos;
  const auto bytes = marked ? tokenizer.bytes_of(id) : text;
  if (!bytes) return nullptr;
  Json numbers = Json::array();
  for (const char c : *bytes) numbers.push_back(static_cast<unsigned char>(c));
  return numbers;
}

Json head_json(const ReplyHead& head, const char* object) {
  return {{"id", head.id},
          {"object", object},
          {"created", head.created},
          {"model", head.model},
          {"system_fingerprint", head.fingerprint},
          {"seed", head.seed}};
}

const char* frame_object(const ReplyHead& head) {
  return head.endpoint == Endpoint::chat ? "chat.completion.chunk" : "text_completion";
}

void add_end_and_ids(Json& choice, const ReplyPiece& piece) {
  choice["finish_reason"] = piece.end ? Json(piece.end->reason) : Json(nullptr);
  choice["stop_reason"] = piece.end ? piece.end->stop_reason : Json(nullptr);
  if (piece.token_ids) choice["token_ids"] = *piece.token_ids;
  if (piece.prompt_ids) choice["prompt_token_ids"] = *piece.prompt_ids;
}

Json chat_delta(const ReplyPiece& piece) {
  Json delta = Json::object();
  if (piece.opens) delta["role"] = "assistant";
  if (piece.opens || !piece.text.empty()) delta["content"] = piece.text;
  if (!piece.reasoning.empty()) {
    delta["reasoning"] = piece.reasoning;
    delta["reasoning_content"] = piece.reasoning;
  }
  return delta;
}

}  // namespace

Json usage_json(const ReplyUsage& usage) {
  return {{"prompt_tokens", usage.prompt},
          {"completion_tokens", usage.completion},
          {"total_tokens", usage.prompt + usage.completion},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning}}}};
}

Json reply_json(const ReplyHead& head, std::span<const ReplyPiece> choices, const ReplyUsage& usage,
                bool include_reasoning) {
  const bool chat = head.endpoint == Endpoint::chat;
  Json reply = head_json(head, chat ? "chat.completion" : "text_completion");
  Json list = Json::array();
  for (const ReplyPiece& piece : choices) {
    Json choice = {{"index", piece.index}, {"logprobs", piece.logprobs}};
    if (chat) {
      choice["message"] = {{"role", "assistant"}, {"content", piece.text}, {"refusal", nullptr}};
      if (include_reasoning) {
        const Json reasoning = piece.reasoning.empty() ? Json(nullptr) : Json(piece.reasoning);
        choice["message"]["reasoning"] = reasoning;
        choice["message"]["reasoning_content"] = reasoning;
      }
    } else {
      choice["text"] = piece.text;
    }
    add_end_and_ids(choice, piece);
    list.push_back(std::move(choice));
  }
  reply["choices"] = std::move(list);
  reply["usage"] = usage_json(usage);
  return reply;
}

Json frame_json(const ReplyHead& head, const ReplyPiece& piece, bool with_usage,
                const std::optional<ReplyUsage>& usage) {
  Json frame = head_json(head, frame_object(head));
  Json choice = {{"index", piece.index}, {"logprobs", piece.logprobs}};
  if (head.endpoint == Endpoint::chat) {
    choice["delta"] = chat_delta(piece);
  } else {
    choice["text"] = piece.text;
  }
  add_end_and_ids(choice, piece);
  frame["choices"] = Json::array({std::move(choice)});
  if (with_usage) frame["usage"] = usage ? usage_json(*usage) : Json(nullptr);
  return frame;
}

Json usage_frame_json(const ReplyHead& head, const ReplyUsage& usage) {
  Json frame = head_json(head, frame_object(head));
  frame["choices"] = Json::array();
  frame["usage"] = usage_json(usage);
  return frame;
}

std::string event_of(const Json& json) {
  return "data: " + dump(json) + "\n\n";
}

Json chat_logprobs(const Tokenizer& tokenizer, std::span<const HeldToken> tokens, std::int64_t top) {
  Json content = Json::array();
  const auto entry = [&](std::int32_t id, double logprob) -> Json {
    const std::string text = token_text(tokenizer, id);
    return {{"token", text}, {"logprob", finite(logprob)}, {"bytes", bytes_of(tokenizer, id, text)}};
  };
  for (const HeldToken& token : tokens) {
    Json item = entry(token.id, token.logprob.value_or(0.0));
    Json others = Json::array();
    for (const TokenLogprob& other : token.top) {
      if (std::ssize(others) < top) others.push_back(entry(other.id, other.logprob));
    }
    item["top_logprobs"] = std::move(others);
    content.push_back(std::move(item));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json completion_logprobs(const Tokenizer& tokenizer, std::span<const HeldToken> tokens, std::int64_t top,
                         std::int64_t& offset) {
  Json texts = Json::array();
  Json own = Json::array();
  Json tops = Json::array();
  Json offsets = Json::array();
  for (const HeldToken& token : tokens) {
    std::string text = token_text(tokenizer, token.id);
    offsets.push_back(offset);
    offset += static_cast<std::int64_t>(unicode::count_points(text));
    if (!token.logprob) {
      own.push_back(nullptr);
      tops.push_back(nullptr);
    } else {
      own.push_back(finite(*token.logprob));
      Json likeliest = Json::object();
      // Of tokens that spell alike the likeliest stands.
      const auto listed = std::min(token.top.size(), static_cast<std::size_t>(top));
      for (std::size_t i = listed; i-- > 0;)
        likeliest[token_text(tokenizer, token.top[i].id)] = finite(token.top[i].logprob);
      if (!likeliest.contains(text)) likeliest[text] = finite(*token.logprob);
      tops.push_back(std::move(likeliest));
    }
    texts.push_back(std::move(text));
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(own)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

}  // namespace moracle::serve
