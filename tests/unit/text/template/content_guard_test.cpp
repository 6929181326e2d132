// What a client writes stays text: over all tokenizers of the reference data and their strings, and case by case.
#include "text/template/content_guard.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/unicode/utf8.h"
#include "support/tokenizer_cases.h"

namespace moracle {
namespace {

using Ids = std::vector<std::int32_t>;

ChatRequest chat_of(const std::string& content, const char* role = "user") {
  ChatRequest chat;
  chat.messages = OrderedJson::array({{{"role", role}, {"content", content}}});
  return chat;
}

std::string content_of(const GuardedChat& guarded) {
  return guarded.chat.messages.at(0).at("content").get<std::string>();
}

// The tokenizer's ids of a text that it does not look for control tokens in.
Result<Ids> plain_ids(Json json, std::string_view text) {
  Json kept = Json::array();
  for (const Json& token : json["added_tokens"]) {
    const auto content = token.at("content").get<std::string>();
    const bool blank = content.find_first_not_of(" \t\r\n") == std::string::npos;
    if (blank || unicode::count_points(content) == 1) kept.push_back(token);
  }
  json["added_tokens"] = std::move(kept);
  json["post_processor"] = nullptr;
  MORACLE_ASSIGN(const Tokenizer tokenizer, Tokenizer::from_json(json, "plain"));
  return tokenizer.encode(text, {.add_special_tokens = false});
}

class GuardOf : public testing::TestWithParam<std::string> {};

TEST_P(GuardOf, TextsMakeNoControlTokenAndOthersKeepTheirIds) {
  const auto path = test::tokenizer_cases_dir() / GetParam();
  const auto json = read_json(path.string() + ".json");
  ASSERT_TRUE(json.ok()) << json.error().message();
  const auto tokenizer = Tokenizer::from_json(*json, GetParam());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message();
  const ContentGuard guard(*tokenizer);
  std::vector<std::string> texts;
  for (const test::TokenizerCase& one : test::read_tokenizer_cases(path.string() + ".cases")) {
    if (texts.size() < 400) texts.push_back(one.text);
  }
  const std::vector<std::string> spellings = tokenizer->control_tokens();
  for (std::size_t i = 0; i < std::min<std::size_t>(spellings.size(), 50); ++i) {
    for (const char* const around : {"", " ", "x", "<", "<|", "\n"})
      texts.push_back(around + spellings[i] + around + spellings[(i * 7 + 1) % spellings.size()]);
  }
  int spelled = 0;
  for (const std::string& text : texts) {
    const auto guarded = guard.apply(chat_of(text));
    ASSERT_TRUE(guarded.ok()) << guarded.error().message();
    const auto has = tokenizer->has_control_token(text, false);
    ASSERT_TRUE(has.ok());
    const auto ids = tokenizer->encode(content_of(*guarded), {.add_special_tokens = false, .mark = guarded->mark});
    ASSERT_TRUE(ids.ok()) << ids.error().message();
    const auto before = tokenizer->encode(text, {.add_special_tokens = false});
    spelled += *has ? 1 : 0;
    if (*has) {
      EXPECT_FALSE(*tokenizer->has_control_token(content_of(*guarded), false)) << testing::PrintToString(text);
      EXPECT_NE(guarded->mark, 0U);
    } else {
      EXPECT_EQ(*ids, *before) << testing::PrintToString(text);
    }
    EXPECT_EQ(guarded->shown(content_of(*guarded)), text);
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_TRUE(spelled > 0 || spellings.empty());
  // What was broken is what the vocabulary makes of its letters.
  for (const std::string& text : {spellings.empty() ? "x" : spellings.front(), "a " + std::string("<|im_end|>")}) {
    const auto guarded = guard.apply(chat_of(text));
    ASSERT_TRUE(guarded.ok());
    const auto ids = tokenizer->encode(content_of(*guarded), {.add_special_tokens = false, .mark = guarded->mark});
    const auto plain = plain_ids(*json, text);
    ASSERT_TRUE(ids.ok() && plain.ok());
    EXPECT_EQ(*ids, *plain) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, GuardOf, testing::ValuesIn(test::tokenizer_case_names()),
                         [](const auto& name) { return name.param; });

// "a" to "z", punctuation, and these added tokens.
Tokenizer tokenizer_of(const std::vector<std::pair<std::string, bool>>& tokens, Json normalizer = nullptr,
                       bool normalized = false) {
  Json vocab = Json::object();
  for (char c = ' '; c <= '~'; ++c) vocab[std::string(1, c)] = vocab.size();
  Json added = Json::array();
  for (const auto& [content, special] : tokens) {
    added.push_back({{"id", 1000 + added.size()},
                     {"content", content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", normalized},
                     {"special", special}});
  }
  const Json model = {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}};
  auto read = Tokenizer::from_json({{"added_tokens", added}, {"normalizer", normalizer}, {"model", model}}, "t.json");
  EXPECT_TRUE(read.ok()) << read.error().message();
  return *std::move(read);
}

// The content behind the guard, its mark written as "#".
std::string marked(const Tokenizer& tokenizer, const std::string& content, const char* role = "user") {
  const auto guarded = ContentGuard(tokenizer).apply(chat_of(content, role));
  if (!guarded.ok()) return guarded.error().code;
  std::string text = content_of(*guarded);
  std::string mark;
  unicode::append_utf8(mark, guarded->mark);
  for (std::size_t at = text.find(mark); guarded->mark != 0 && at != std::string::npos; at = text.find(mark))
    text.replace(at, mark.size(), "#");
  return text;
}

TEST(ContentGuard, BreaksSpellingsBehindTheirFirstCharacter) {
  const Tokenizer tokenizer = tokenizer_of({{"<|end|>", true}, {"</think>", false}, {"  ", false}, {"u", true}});
  EXPECT_EQ(marked(tokenizer, "a<|end|>b"), "a<#|end|>b");
  EXPECT_EQ(marked(tokenizer, "<|end|><|end|>"), "<#|end|><#|end|>");
  EXPECT_EQ(marked(tokenizer, "</think>", "system"), "<#/think>");
  EXPECT_EQ(marked(tokenizer, "</think>", "tool"), "<#/think>");
  EXPECT_EQ(marked(tokenizer, "so</think>ok", "assistant"), "so</think>ok") << "templates look for it";
  EXPECT_EQ(marked(tokenizer, "x<|end|>", "assistant"), "x<#|end|>");
  EXPECT_EQ(marked(tokenizer, "a  b u"), "a  b u") << "white space and single characters control nothing";
  EXPECT_EQ(marked(tokenizer, "a < |end|>"), "a < |end|>");
}

TEST(ContentGuard, OverlappingSpellingsAreAllBroken) {
  const Tokenizer tokenizer = tokenizer_of({{"<ab>", true}, {"b><", true}, {"aaa", true}});
  EXPECT_EQ(marked(tokenizer, "<ab><x"), "<#ab#><x");
  EXPECT_EQ(marked(tokenizer, "aaaaa"), "a#a#a#a#a#") << "also what its end begins";
}

TEST(ContentGuard, WhatATemplateMayCompleteIsBroken) {
  const Tokenizer tokenizer = tokenizer_of({{"<|end|>", true}, {"<tool_call>", false}});
  EXPECT_EQ(marked(tokenizer, "a<|en"), "a<#|en");
  EXPECT_EQ(marked(tokenizer, "a <"), "a <#");
  EXPECT_EQ(marked(tokenizer, "tool_call"), "t#ool_call");
  EXPECT_EQ(marked(tokenizer, "|end|"), "|#end|");
  EXPECT_EQ(marked(tokenizer, "the tool_call"), "the tool_call");
}

TEST(ContentGuard, AMarkIsNoCharacterOfTheTexts) {
  const Tokenizer tokenizer = tokenizer_of({{"<|end|>", true}});
  const auto guarded = ContentGuard(tokenizer).apply(chat_of("<|end|>\uFDD0"));
  ASSERT_TRUE(guarded.ok());
  EXPECT_EQ(guarded->mark, U'\uFDD1');
  EXPECT_EQ(content_of(*guarded), "<\uFDD1|end|>\uFDD0");
  std::string all;
  for (char32_t code = 0xFDD0; code <= 0xFDEF; ++code) unicode::append_utf8(all, code);
  EXPECT_EQ(marked(tokenizer, all), "text.noncharacter");
}

TEST(ContentGuard, ANormalizerMakesNone) {
  const Tokenizer lower = tokenizer_of({{"[sep]", true}}, {{"type", "Lowercase"}}, true);
  EXPECT_EQ(marked(lower, "[sep]"), "[#sep]");
  EXPECT_EQ(marked(lower, "[SeP]"), "[#S#e#P#]#");
  const Tokenizer wide = tokenizer_of({{"<|end|>", true}}, {{"type", "NFKC"}}, true);
  const std::string fullwidth = "\uFF1C\uFF5Cend\uFF5C\uFF1E";
  ASSERT_TRUE(*wide.has_control_token(fullwidth, false));
  const auto guarded = ContentGuard(wide).apply(chat_of(fullwidth));
  ASSERT_TRUE(guarded.ok());
  const auto ids = wide.encode(content_of(*guarded), {.mark = guarded->mark});
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(*wide.decode(*ids, false), "< | e n d | >");
  EXPECT_EQ(std::count(ids->begin(), ids->end(), 1000), 0);
}

TEST(ContentGuard, ToolsCallsAndVariablesAreTextsToo) {
  const Tokenizer tokenizer = tokenizer_of({{"<|end|>", true}, {"<tool_call>", false}});
  ChatRequest chat = chat_of("hi");
  chat.messages.push_back(OrderedJson::parse(R"({"role": "assistant", "content": null, "tool_calls": [
      {"type": "function", "function": {"name": "f<|end|>", "arguments": {"|end|": ["<|end|>", 1]}}}]})"));
  chat.tools = OrderedJson::parse(R"([{"type": "function", "function": {"name": "tool_call",
      "parameters": {"type": "object", "properties": {"tool_call": {"type": "<|end|>"}}}}}])");
  chat.variables = OrderedJson::parse(R"({"effort": "<|end|>", "mode": "tool_call"})");
  const auto guarded = ContentGuard(tokenizer).apply(chat);
  ASSERT_TRUE(guarded.ok());
  EXPECT_EQ(guarded->chat.messages.at(1).at("tool_calls").dump(),
            R"([{"type":"function","function":{"name":"f<﷐|end|>","arguments":{"|﷐end|":["<﷐|end|>",1]}}}])");
  EXPECT_EQ(
      guarded->chat.tools.at(0).at("function").dump(),
      R"({"name":"t﷐ool_call","parameters":{"type":"object","properties":{"t﷐ool_call":{"type":"<﷐|end|>"}}}})");
  EXPECT_EQ(guarded->chat.variables.dump(), R"({"effort":"<﷐|end|>","mode":"tool_call"})")
      << "templates compare variables with words of their own";
}

}  // namespace
}  // namespace moracle
