// Tokens of several characters: a mask has those whose bytes may come one after another.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "support/held_output.h"
#include "text/constrain/token_mask.h"

namespace moracle {
namespace {

using testing::compiled;
using testing::kByteEnd;
using testing::schema_format;

// All bytes, an end, and texts of several characters of strings, patterns and what stands around them.
std::vector<std::string> vocabulary() {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  texts.emplace_back();
  const std::vector<std::string> parts = {"a", "b", "\"", "\\", "n", "\\u0061", "\xc3\xa9", "\xc3", ",", "]", " "};
  for (const std::string& one : parts) {
    for (const std::string& two : parts) {
      texts.push_back(one + two);
      for (const std::string& three : parts) texts.push_back(one + two + three);
    }
  }
  for (std::size_t count = 4; count < 60; count += 5) texts.emplace_back(count, 'a');
  for (const std::size_t count : {1U, 7U, 16U, 32U, 33U}) {
    const std::string indent = "\n" + std::string(count, ' ');
    for (const char* behind : {"", "\"", "\"a", "}", "b", "\t\t,"}) texts.push_back(indent + behind);
    texts.push_back(indent.substr(1) + "\"");
  }
  return texts;
}

// Whether a reply may begin with `text`, byte by byte.
bool may_begin(const Grammar& grammar, std::string_view text) {
  const std::int32_t end = kByteEnd;
  const auto constraint = grammar.start({&end, 1});
  for (const char c : text) {
    const auto id = static_cast<std::int32_t>(static_cast<unsigned char>(c));
    if (!testing::allows(*constraint, id)) return false;
    constraint->advance(id);
  }
  return true;
}

void check_walk(const OutputFormat& format, const std::vector<std::string>& texts, GrammarCompiler& compiler,
                std::mt19937& random) {
  const auto bytes = compiled(format);
  const auto grammar = compiler.compile(*grammar_of(format));
  ASSERT_TRUE(bytes.ok() && grammar.ok());
  const std::int32_t end = kByteEnd;
  const auto constraint = (*grammar)->start({&end, 1});
  std::string text;
  for (int step = 0; step < 16; ++step) {
    std::vector<std::uint32_t> mask(texts.size() / kMaskWordBits + 1, ~std::uint32_t{0});
    constraint->narrow(mask);
    std::vector<std::size_t> allowed;
    for (std::size_t id = 0; id < texts.size(); ++id) {
      if (texts[id].empty()) continue;
      const bool may = in_mask(mask, static_cast<std::int32_t>(id));
      if (may) allowed.push_back(id);
      const bool checked = texts[id].size() > 1 && random() % 16 == 0;
      if (checked) {
        ASSERT_EQ(may, may_begin(**bytes, text + texts[id])) << text << " and " << texts[id];
      }
    }
    ASSERT_EQ(in_mask(mask, end), testing::may_be(**bytes, text)) << text;
    if (allowed.empty()) return;
    // Long ones are as likely as the many short ones.
    const std::size_t id = allowed[random() % 3 == 0 ? allowed.size() - 1 : random() % allowed.size()];
    constraint->advance(static_cast<std::int32_t>(id));
    text += texts[id];
  }
}

TEST(TokenMasks, AreWhatBytesAllow) {
  if (!can_constrain()) GTEST_SKIP() << "built without xgrammar";
  const std::vector<std::string> texts = vocabulary();
  const auto compiler = GrammarCompiler::open(texts, static_cast<std::int32_t>(texts.size()));
  ASSERT_TRUE(compiler.ok());
  const auto regex = [](std::string text) {
    return OutputFormat{.kind = OutputFormat::Kind::regex, .regex = std::move(text)};
  };
  const OutputFormat formats[] = {
      schema_format(R"({"type":"string","maxLength":40})"),
      schema_format(R"({"type":"string","minLength":18,"maxLength":24})"),
      schema_format(R"({"type":"string","minLength":20})"),
      schema_format(R"({"type":"string","maxLength":5})"),
      schema_format(R"({"type":"array","items":{"type":"string","minLength":1,"maxLength":20}})"),
      schema_format(R"({"type":"array","prefixItems":[{"type":"string","maxLength":30},{"type":"string"}]})"),
      schema_format(R"({"anyOf":[{"type":"string","maxLength":20},{"type":"string","pattern":"^a{10,40}b$"}]})"),
      schema_format(R"({"type":"string","pattern":"^[ab]{0,30}n?$"})"),
      schema_format(R"({"type":"string","pattern":"^[^b]{17,30}$"})"),
      schema_format(R"({"type":"string","format":"email"})"),
      schema_format(R"({"type":"string","format":"hostname"})"),
      schema_format(R"({"type":"string","format":"uri"})"),
      schema_format(R"({"type":"array","items":{"enum":["a",1,null]}})"),
      schema_format(R"({"properties":{"a":{},"b":{},"n":{"const":1}},"required":["n"],"type":"object"})"),
      schema_format(R"({"properties":{"ab":{"const":"b"}},"additionalProperties":{"const":1},"type":"object"})"),
      schema_format(R"({"type":"string","pattern":"^(?:(?:a+b)*n|\"a)+(?:,[ab])?]$"})"),
      regex("(?:a+b|(?:n,)*){0,2}b?(?:a|ab|n)*]?"),
      regex("[ab]{0,40}"),
      regex("[ab]{20,40}n[ab]{0,30}"),
      regex(R"(.{3,20}\])"),
      regex("n(?:[ab]{1,20})?"),
      regex("[ab]{0,30}[ab,]{0,30}"),
      regex("(?:[ab]{1,20},){1,3}"),
      regex("[ab]{20,}"),
  };
  std::mt19937 random(3);
  for (const OutputFormat& format : formats) {
    SCOPED_TRACE(format.regex + format.schema.dump());
    check_walk(format, texts, **compiler, random);
  }
}

}  // namespace
}  // namespace moracle
