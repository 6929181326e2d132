// Answers questions in JSON, one a line, so that a script can hold them against other implementations
// (differential.py).
//
//   {"ask": "safetensors", "hex": BYTES}                       {"tensors": {NAME: [DTYPE, SHAPE, BEGIN, END]}}
//   {"ask": "tokenizer", "json": TEXT, "texts": [TEXT]}        {"ids": [[ID]], "plain": [[ID]], "decoded": [TEXT]}
//   {"ask": "regex", "pattern": TEXT, "text": TEXT}            {"matches": [[BEGIN, END]]}, in bytes
//   {"ask": "template", "source": TEXT, "context": JSON TEXT}  {"text": TEXT}
//
// or {"error": CODE, "message": TEXT}.
#include <cstddef>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/safetensors_header.h"
#include "text/budgets.h"
#include "text/template/chat_template.h"
#include "text/tokenizer/search/regex.h"
#include "text/tokenizer/tokenizer.h"

namespace {

using moracle::Json;
using moracle::Result;

Result<Json> safetensors(const Json& question) {
  const auto& hex = question.at("hex").get_ref<const std::string&>();
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  MORACLE_ASSIGN(const auto header, moracle::parse_header(std::as_bytes(std::span(bytes)), bytes.size(), "bytes"));
  Json tensors = Json::object();
  for (const moracle::TensorEntry& entry : header.tensors)
    tensors[entry.name] = {moracle::to_string(entry.dtype), entry.shape, entry.begin, entry.end};
  return Json{{"tensors", tensors}};
}

Result<Json> tokenizer(const Json& question) {
  MORACLE_ASSIGN(const Json json, moracle::parse_json(question.at("json").get_ref<const std::string&>(), "text"));
  MORACLE_ASSIGN(const auto made, moracle::Tokenizer::from_json(json, "text"));
  Json answer{{"ids", Json::array()}, {"plain", Json::array()}, {"decoded", Json::array()}};
  for (const Json& text : question.at("texts")) {
    const auto& bytes = text.get_ref<const std::string&>();
    MORACLE_ASSIGN(const auto ids, made.encode(bytes));
    MORACLE_ASSIGN(const auto plain, made.encode(bytes, {.add_special_tokens = false}));
    answer["ids"].push_back(ids);
    answer["plain"].push_back(plain);
    MORACLE_ASSIGN(const auto decoded, made.decode(plain, false));
    answer["decoded"].push_back(decoded);
  }
  return answer;
}

Result<Json> regex(const Json& question) {
  MORACLE_ASSIGN(const auto pattern, moracle::TextPattern::regex(question.at("pattern").get_ref<const std::string&>()));
  moracle::Budget budget(moracle::kEncoding);
  moracle::Searcher searcher(budget);
  std::vector<moracle::MatchSpan> matches;
  MORACLE_TRY(pattern.find_all(question.at("text").get_ref<const std::string&>(), searcher, matches));
  Json answer{{"matches", Json::array()}};
  for (const moracle::MatchSpan& match : matches) answer["matches"].push_back({match.begin, match.end});
  return answer;
}

Result<Json> chat_template(const Json& question) {
  MORACLE_ASSIGN(const auto parsed, moracle::ChatTemplate::parse(question.at("source"), "source"));
  // The order of keys is part of what templates print.
  const auto context = nlohmann::ordered_json::parse(question.at("context").get_ref<const std::string&>());
  MORACLE_ASSIGN(const std::string text, parsed.render(context));
  return Json{{"text", text}};
}

Result<Json> answer(const Json& question) {
  const std::string kind = question.at("ask");
  if (kind == "safetensors") return safetensors(question);
  if (kind == "tokenizer") return tokenizer(question);
  if (kind == "regex") return regex(question);
  return chat_template(question);
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto answered = answer(Json::parse(line));
    const Json json =
        answered.ok() ? *answered : Json{{"error", answered.error().code}, {"message", answered.error().message()}};
    std::cout << json.dump(-1, ' ', true, Json::error_handler_t::replace) << std::endl;
  }
  return 0;
}
