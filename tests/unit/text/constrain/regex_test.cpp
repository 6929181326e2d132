// Regular expressions and choices that replies are held to.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "support/held_output.h"
#include "text/constrain/regex/regex_syntax.h"

namespace moracle {
namespace {

using testing::compiled;
using testing::may_be;

struct Case {
  std::string_view regex;
  std::vector<std::string_view> may;
  std::vector<std::string_view> may_not;
};

const Case kCases[] = {
    {"abc", {"abc"}, {"ab", "abcd", ""}},
    {"^(?:yes|no)$", {"yes", "no"}, {"yesno", "y"}},
    {"a|^b$|c", {"a", "b", "c"}, {"ab"}},
    {"a*?b+?c??", {"b", "aab", "bbc"}, {"a", "ac"}},
    {"a{2}b{1,}c{0,2}", {"aab", "aabbcc"}, {"ab", "aabccc"}},
    {R"(\d{3}-\w\s\.)", {"123-a .", "000-_\t."}, {"12-a .", "123-a ,"}},
    {R"([^a-c\d]+)", {"xyz", "-"}, {"a", "x1", ""}},
    {R"([\]\-\\a-c]+)", {"]-\\b"}, {"d"}},
    {"(?<n>a)(?P<m>b)", {"ab"}, {"a"}},
    {R"(\x41\u00e9\u{1F600}\t)", {"A\xc3\xa9\xf0\x9f\x98\x80\t"}, {"A"}},
    {R"(\ud83d\ude00)", {"\xf0\x9f\x98\x80"}, {"x"}},
    {".{1,2}", {"a", "\xc3\xa9z"}, {"", "\n", "abc"}},
    {"(a|b)*c{2}", {"cc", "ababcc"}, {"c", "abc"}},
    {"a{x}{", {"a{x}{"}, {"ax"}},
    {"(a*)*b", {"b", "aab"}, {"a"}},
    {"(|a)+", {"", "aa"}, {"b"}},
    {R"(\S\D\W)", {"xy."}, {" y.", "x1.", "xya"}},
};

TEST(Regex, RepliesMatchAsAWhole) {
  if (!can_constrain()) GTEST_SKIP() << "built without xgrammar";
  for (const Case& one : kCases) {
    SCOPED_TRACE(std::string(one.regex));
    const auto grammar = compiled({.kind = OutputFormat::Kind::regex, .regex = std::string(one.regex)});
    ASSERT_TRUE(grammar.ok()) << grammar.error().message();
    for (const std::string_view text : one.may) EXPECT_TRUE(may_be(**grammar, text)) << text;
    for (const std::string_view text : one.may_not) EXPECT_FALSE(may_be(**grammar, text)) << text;
  }
}

TEST(Regex, TreesMatchWhatTheirGrammarsDo) {
  for (const Case& one : kCases) {
    SCOPED_TRACE(std::string(one.regex));
    const auto regex = parse_regex(one.regex);
    ASSERT_TRUE(regex.ok()) << regex.error().message();
    for (const std::string_view text : one.may) EXPECT_TRUE(matches(whole(*regex), text)) << text;
    for (const std::string_view text : one.may_not) EXPECT_FALSE(matches(whole(*regex), text)) << text;
  }
  EXPECT_TRUE(matches(searched(*parse_regex("b")), "abc"));
  EXPECT_FALSE(matches(searched(*parse_regex("^b")), "abc"));
  EXPECT_FALSE(matches(searched(*parse_regex("b$")), "abc"));
}

TEST(Regex, IsRefused) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"(?=a)", "regex.unsupported"},
      {"(?<!a)b", "regex.unsupported"},
      {R"((a)\1)", "regex.unsupported"},
      {R"(\bword)", "regex.unsupported"},
      {"(?i)a", "regex.unsupported"},
      {R"(\p{L})", "regex.unsupported"},
      {"(^a)", "regex.unsupported"},
      {"a++", "regex.unsupported"},
      {"[[:alpha:]]", "regex.unsupported"},
      {"[]", "regex.unsupported"},
      {"a{,3}", "regex.unsupported"},
      {"(a", "regex.syntax"},
      {"a)", "regex.syntax"},
      {"*a", "regex.syntax"},
      {"[a", "regex.syntax"},
      {"a{3,2}", "regex.syntax"},
      {"[z-a]", "regex.syntax"},
      {"a\\", "regex.syntax"},
      {R"(\ud800)", "regex.syntax"},
      {"a**", "regex.syntax"},
      {"(a{1,200}){1,200}", "constrain.complex"},
      {"a{20001}", "constrain.complex"},
      {"[^\\s\\S]", "regex.empty"},
  };
  for (const auto& [spelled, code] : cases) {
    SCOPED_TRACE(std::string(spelled));
    const auto grammar = grammar_of({.kind = OutputFormat::Kind::regex, .regex = std::string(spelled)});
    ASSERT_FALSE(grammar.ok());
    EXPECT_EQ(grammar.error().code, code) << grammar.error().message();
  }
  const std::string deep = std::string(80, '(') + "a" + std::string(80, ')');
  EXPECT_EQ(parse_regex(deep).error().code, "constrain.complex");
}

TEST(Regex, LengthsGoToTheOnePartThatVaries) {
  const auto node = whole(*parse_regex("ab[0-9]*c"));
  EXPECT_EQ(length_of(node).least, 3);
  EXPECT_FALSE(length_of(node).most);
  const auto held = bounded(node, {.least = 4, .most = 5});
  ASSERT_TRUE(held);
  EXPECT_FALSE(matches(*held, "abc"));
  EXPECT_TRUE(matches(*held, "ab12c"));
  EXPECT_FALSE(matches(*held, "ab123c"));
  EXPECT_FALSE(bounded(whole(*parse_regex("a*b*")), {.least = 0, .most = 3}));
  EXPECT_EQ(length_of(whole(*parse_regex("(a|bcd){2}"))).most, 6);
}

TEST(Regex, WhatWouldCompileForLongIsRefused) {
  const auto code = [](const std::string& spelled) {
    const auto grammar = grammar_of({.kind = OutputFormat::Kind::regex, .regex = spelled});
    return grammar.ok() ? std::string() : grammar.error().code;
  };
  for (const char* const spelled : {".{0,22}z", "[^z]{0,2000}z", ".{0,2000}", "[a-z]{0,60}z", "[0-9]{1,400}5",
                                    "[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", "(?:a?b){30}"})
    EXPECT_EQ(code(spelled), "") << spelled;
  for (const char* const spelled : {".{0,23}z", "x(?:.{1,129})?y?", "[a-z ]{0,60}z", ".{100,}z"})
    EXPECT_EQ(code(spelled), "constrain.complex") << spelled;
  std::string row;
  for (int i = 0; i < 20; ++i) row += i % 2 == 0 ? "(?:a[bc])?" : "[ab]*";
  EXPECT_EQ(code(row), "");
  EXPECT_EQ(code(row + "b?"), "constrain.complex");
  EXPECT_EQ(code(row + "b" + row), "");
  std::string classes;
  for (int i = 0; i < 2002; ++i) classes += "[ab]";
  EXPECT_EQ(code(classes), "constrain.complex");
  // Repeats of what is repeated itself.
  const auto nested = compiled({.kind = OutputFormat::Kind::regex, .regex = "(?:a{1,20}){1,20}"});
  if (can_constrain()) {
    ASSERT_TRUE(nested.ok());
    EXPECT_TRUE(may_be(**nested, "aaa"));
  }
}

TEST(Choice, IsOneOfThem) {
  if (!can_constrain()) GTEST_SKIP() << "built without xgrammar";
  const auto grammar = compiled({.kind = OutputFormat::Kind::choice, .choices = {"red", "re\"d\n", "\xc3\xa9"}});
  ASSERT_TRUE(grammar.ok()) << grammar.error().message();
  EXPECT_TRUE(may_be(**grammar, "red"));
  EXPECT_TRUE(may_be(**grammar, "re\"d\n"));
  EXPECT_TRUE(may_be(**grammar, "\xc3\xa9"));
  EXPECT_FALSE(may_be(**grammar, "re"));
  EXPECT_FALSE(may_be(**grammar, " red"));
  EXPECT_EQ(grammar_of({.kind = OutputFormat::Kind::choice}).error().code, "constrain.choice");
  EXPECT_EQ(grammar_of({.kind = OutputFormat::Kind::choice, .choices = {""}}).error().code, "constrain.choice");
}

TEST(Grammar, IsCompiledOnceAndServesManyReplies) {
  if (!can_constrain()) GTEST_SKIP() << "built without xgrammar";
  const auto first = compiled({.kind = OutputFormat::Kind::json_object});
  const auto again = compiled({.kind = OutputFormat::Kind::json_object});
  ASSERT_TRUE(first.ok() && again.ok());
  EXPECT_EQ(*first, *again);
  const std::int32_t end = testing::kByteEnd;
  const auto one = (*first)->start({&end, 1});
  const auto two = (*first)->start({&end, 1});
  one->advance('{');
  one->advance('}');
  EXPECT_TRUE(testing::allows(*one, end));
  EXPECT_FALSE(testing::allows(*one, '}'));
  EXPECT_TRUE(one->must_end());
  EXPECT_FALSE(testing::allows(*two, end));
  EXPECT_FALSE(two->must_end());
}

TEST(Grammar, ATokenThatNoMaskAllowsEndsTheReply) {
  if (!can_constrain()) GTEST_SKIP() << "built without xgrammar";
  const auto grammar = compiled({.kind = OutputFormat::Kind::json_object});
  ASSERT_TRUE(grammar.ok());
  const std::int32_t end = testing::kByteEnd;
  const auto constraint = (*grammar)->start({&end, 1});
  constraint->advance('x');
  EXPECT_TRUE(constraint->must_end());
  EXPECT_TRUE(testing::allows(*constraint, end));
  EXPECT_FALSE(testing::allows(*constraint, '{'));
}

}  // namespace
}  // namespace moracle
