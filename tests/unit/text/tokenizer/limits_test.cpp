// Tokenizers written by someone who wants to keep a machine busy: each ends early, with one error that names the limit.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/budgets.h"
#include "text/tokenizer/tokenizer.h"

namespace moracle {
namespace {

using Ids = std::vector<std::int32_t>;

// Some ten times what is measured, for sanitizers and busy machines; without a budget each case takes minutes.
constexpr std::chrono::seconds kSoon(15);

Json with(const Json& members) {
  Json json = {{"version", "1.0"},
               {"model",
                {{"type", "BPE"},
                 {"vocab", {{"a", 0}, {"b", 1}, {"aa", 2}, {" ", 3}}},
                 {"merges", {"a a"}},
                 {"unk_token", "b"},
                 {"fuse_unk", true}}}};
  json.update(members);
  return json;
}

Json times(std::size_t count, const Json& step) {
  return Json(std::vector<Json>(count, step));
}

Json normalizers(const Json& steps) {
  return {{"normalizer", {{"type", "Sequence"}, {"normalizers", steps}}}};
}

Json pre_tokenizers(const Json& steps) {
  return {{"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", steps}}}};
}

Json decoders(const Json& steps) {
  return {{"decoder", {{"type", "Sequence"}, {"decoders", steps}}}};
}

Json replace(const Json& pattern, const std::string& content) {
  return {{"type", "Replace"}, {"pattern", pattern}, {"content", content}};
}

Json split(const std::string& pattern, const std::string& behavior = "Isolated") {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", behavior}, {"invert", false}};
}

Json added(std::int32_t id, const std::string& content, bool normalized = false) {
  return {{"id", id},       {"content", content},       {"single_word", false}, {"lstrip", true},
          {"rstrip", true}, {"normalized", normalized}, {"special", false}};
}

// The code of the error of loading, or of encoding a text that a template made; "" where both end well.
std::string refusal(const Json& json, std::string_view text) {
  const auto start = std::chrono::steady_clock::now();
  const auto tokenizer = Tokenizer::from_json(json, "tokenizer.json");
  std::string code = tokenizer.ok() ? "" : tokenizer.error().code;
  if (tokenizer.ok()) {
    const auto ids = tokenizer->encode(text, {.own_bytes = 100});
    if (!ids.ok()) code = ids.error().code;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, kSoon);
  return code;
}

const std::string& sixteen_megabytes() {
  static const std::string text(std::size_t{16} << 20U, 'a');
  return text;
}

TEST(TokenizerLimits, TextsThatGrowAreRefusedBeforeTheyAreMade) {
  const Json doubling = replace({{"String", "a"}}, "aa");
  EXPECT_EQ(refusal(with(normalizers(times(40, doubling))), "a"), "tokenizer.limit");
  // Under a sanitizer the clock of all steps ends before the searches of one do.
  const std::string growing = refusal(with(normalizers(times(40, replace({{"Regex", "(?=.)"}}, "aa")))), "a");
  EXPECT_TRUE(growing == "tokenizer.regex_limit" || growing == "tokenizer.limit") << growing;
  EXPECT_EQ(refusal(with(normalizers(times(6, replace({{"Regex", ""}}, std::string(1000, 'a'))))), "a"),
            "tokenizer.limit");
  const Json ligature = replace({{"String", " "}}, "\xEF\xB7\xBA\xEF\xB7\xBA\xEF\xB7\xBA");  // U+FDFA, 18 characters
  Json steps = Json::array();
  for (int i = 0; i < 12; ++i) {
    steps.push_back(ligature);
    steps.push_back({{"type", "NFKD"}});
  }
  EXPECT_EQ(refusal(with(normalizers(steps)), " "), "tokenizer.limit");
}

TEST(TokenizerLimits, ComponentsAndTheirTextsAreCounted) {
  const Json lower = {{"type", "Lowercase"}};
  EXPECT_EQ(refusal(with(normalizers(times(kTokenizerComponents - 1, lower))), "a"), "");
  EXPECT_EQ(refusal(with(normalizers(times(kTokenizerComponents, lower))), "a"), "tokenizer.limit");
  EXPECT_EQ(refusal(with(pre_tokenizers(times(kTokenizerComponents, split("b")))), "a"), "tokenizer.limit");
  EXPECT_EQ(refusal(with(decoders(times(kTokenizerComponents, {{"type", "Fuse"}}))), "a"), "tokenizer.limit");
  const auto prepend = [](std::size_t bytes) {
    return with({{"normalizer", {{"type", "Prepend"}, {"prepend", std::string(bytes, 'a')}}}});
  };
  EXPECT_EQ(refusal(prepend(kTokenizerTextBytes), "a"), "");
  EXPECT_EQ(refusal(prepend(kTokenizerTextBytes + 1), "a"), "tokenizer.unsupported");
}

TEST(TokenizerLimits, PatternsEndWithTheClockOfTheWholeText) {
  for (const char* pattern : {"(a+)+b", "(a|a)*b", "a*a*a*a*a*a*b", "(?:a|a|aa)*[b-d]", ".*?b", "(?<=a{200})b"}) {
    const std::string code = refusal(with(pre_tokenizers(Json::array({split(pattern)}))), sixteen_megabytes());
    EXPECT_TRUE(code == "tokenizer.regex_limit" || code == "tokenizer.limit") << pattern << ": " << code;
  }
  // Each piece alone is short.
  std::string pieces;
  for (int i = 0; i < 200'000; ++i) pieces += "aaaaaaaaaaaaaaaaaaaaaaaaaaaa ";
  const std::string code = refusal(with(pre_tokenizers(Json::array({split(" "), split("(a|a)*[bc]")}))), pieces);
  EXPECT_TRUE(code == "tokenizer.regex_limit" || code == "tokenizer.limit") << code;
}

TEST(TokenizerLimits, EachStepEndsOverSixteenMegabytes) {
  const std::vector<Json> normalizer_steps = {{{"type", "NFC"}},
                                              {{"type", "NFD"}},
                                              {{"type", "NFKC"}},
                                              {{"type", "NFKD"}},
                                              {{"type", "Lowercase"}},
                                              {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}},
                                              {{"type", "ByteLevel"}},
                                              {{"type", "StripAccents"}},
                                              replace({{"String", "a"}}, "b"),
                                              {{"type", "Prepend"}, {"prepend", "a"}}};
  for (const Json& step : normalizer_steps) {
    EXPECT_EQ(refusal(with(normalizers(times(60, step))), sixteen_megabytes()), "tokenizer.limit") << step;
  }
  const std::vector<Json> pre_tokenizer_steps = {
      {{"type", "Digits"}, {"individual_digits", true}},
      {{"type", "Punctuation"}},
      {{"type", "Whitespace"}},
      {{"type", "WhitespaceSplit"}},
      {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}},
      {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "always"}, {"split", true}},
      split("."),
      split("a", "Removed"),
      split("a", "MergedWithNext")};
  for (const Json& step : pre_tokenizer_steps) {
    const std::string code = refusal(with(pre_tokenizers(times(60, step))), sixteen_megabytes());
    EXPECT_TRUE(code == "tokenizer.limit" || code == "tokenizer.regex_limit") << step << ": " << code;
  }
}

TEST(TokenizerLimits, AddedTokensAreFoundInOnePass) {
  Json many = Json::array();
  for (std::int32_t i = 0; i < 2000; ++i) {
    many.push_back(added(10 + i, std::string(static_cast<std::size_t>(i) + 1, 'a') + "b"));
  }
  // Served: each byte of a megabyte begins 2,000 tokens, and none is there.
  EXPECT_EQ(refusal(with({{"added_tokens", many}}), std::string(1 << 20, 'a')), "");
  Json normalized = Json::array();
  for (std::int32_t i = 0; i < 100'000; ++i) normalized.push_back(added(10 + i, "t" + std::to_string(i), true));
  EXPECT_EQ(refusal(with({{"added_tokens", normalized},
                          {"normalizer", {{"type", "Prepend"}, {"prepend", std::string(4000, 'x')}}}}),
                    "a"),
            "tokenizer.limit");
}

TEST(TokenizerLimits, AddedTokensAreCounted) {
  Json many = Json::array();
  for (std::size_t i = 0; i < kAddedTokens; ++i) {
    const auto number = static_cast<std::int32_t>(i);
    many.push_back(added(10 + number, "t" + std::to_string(number)));
  }
  const auto tell = [&] {
    const auto tokenizer = Tokenizer::from_json(with({{"added_tokens", many}}), "tokenizer.json");
    return tokenizer.ok() ? std::string() : tokenizer.error().message();
  };
  // A busy machine may spend the budget of time instead.
  EXPECT_EQ(tell().find("at most"), std::string::npos) << tell();
  many.push_back(added(5, "more"));
  EXPECT_EQ(tell(), "tokenizer.json: /added_tokens: wanted at most 131072 added tokens, found more [tokenizer.limit]");
}

TEST(TokenizerLimits, DecodersEnd) {
  const auto tokenizer =
      Tokenizer::from_json(with(decoders(times(40, replace({{"String", "a"}}, "aa")))), "tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message();
  const auto start = std::chrono::steady_clock::now();
  const auto text = tokenizer->decode(Ids{0});
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code, "tokenizer.limit");
  DetokenizerStream stream(*tokenizer);
  auto part = stream.push(0);
  for (int i = 0; part.ok() && i < 10; ++i) part = stream.push(0);
  if (part.ok()) part = stream.finish();
  EXPECT_FALSE(part.ok());
  EXPECT_LT(std::chrono::steady_clock::now() - start, kSoon);
}

TEST(TokenizerLimits, APostProcessorAddsFewTokens) {
  const Json x = {{"SpecialToken", {{"id", "x"}, {"type_id", 0}}}};
  Json single(std::vector<Json>(kPostProcessorIds, x));
  const Json tokens = {{"x", {{"id", "x"}, {"ids", {1, 1}}, {"tokens", {"b", "b"}}}}};
  EXPECT_NE(
      refusal(
          with({{"post_processor", {{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", tokens}}}}),
          "a"),
      "");
}

// What a person wrote is encoded whatever its length; the budget grows with it.
TEST(TokenizerLimits, LongTextsOfAPersonAreServed) {
  const auto tokenizer = Tokenizer::from_json(with(pre_tokenizers(Json::array({split(" ")}))), "tokenizer.json");
  ASSERT_TRUE(tokenizer.ok());
  std::string text;
  while (text.size() < (std::size_t{1} << 20U)) text += "aaaa bbb aa ";  // sanitizers take a second
  const auto ids = tokenizer->encode(text);
  EXPECT_TRUE(ids.ok()) << ids.error().message();
}

}  // namespace
}  // namespace moracle
