#include "text/tokenizer/search/regex.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/budgets.h"

namespace moracle {
namespace {

using Spans = std::vector<std::pair<std::size_t, std::size_t>>;

Spans found(const std::string& spelled, std::string_view text) {
  const auto pattern = TextPattern::regex(spelled);
  EXPECT_TRUE(pattern.ok()) << pattern.error().message();
  if (!pattern.ok()) return {};
  Budget budget(kEncoding.plus(kEncodingPerByte.times(text.size())));
  Searcher searcher(budget);
  std::vector<MatchSpan> matches;
  const auto searched = pattern->find_all(text, searcher, matches);
  EXPECT_TRUE(searched.ok()) << spelled << ": " << searched.error().message();
  Spans spans;
  for (const MatchSpan& match : matches) spans.emplace_back(match.begin, match.end);
  return spans;
}

// A text without an address is as empty as any other; the compiled program must not read in front of it.
TEST(TextPattern, EmptyTextNeedsNoAddress) {
  for (const char* spelled : {"", "a*", "a{2}?b the cat|p {T +@|", "(?i:'s)|\\p{L}+|\\s+", "a|b||c", "\\b|x?$"}) {
    const Spans without = found(spelled, std::string_view());
    for (const auto& [begin, end] : without) EXPECT_TRUE(begin == 0 && end == 0) << spelled << ": " << end;
    EXPECT_EQ(without, found(spelled, "")) << spelled;
  }
}

// A pattern that looks at few characters is searched for in windows that no match leaves; one more alternative, which
// never matches, but looks at any number, has it searched for in another way.
TEST(TextPattern, PatternsThatLookAtFewCharactersFindTheSame) {
  constexpr std::string_view kLetters[] = {
      "a", "b", "the", " ", "\n", "\r\n", "\xC3\x9F", "\xE4\xB8\xAD", "\xF0\x9F\x98\x80"};
  std::string mixed;
  std::uint32_t state = 1;
  for (int i = 0; i < 6000; ++i) {
    state = state * 1664525U + 1013904223U;
    mixed += kLetters[(state >> 16U) % std::size(kLetters)];
  }
  std::string runs;
  for (std::size_t i = 0; i < 40; ++i) runs += std::string(100 + 5 * i, 'a') + (i % 3 == 0 ? "b\n" : "b");
  const std::vector<std::string> texts = {mixed, mixed + "\n", runs, "", "a", "\n", mixed.substr(0, 301)};
  for (const char* spelled : {R"(\bthe\b|\B\p{Lo})",
                              "a{3}(?=b)",
                              "^a$",
                              R"(b$|a\z)",
                              R"(a\Z)",
                              "(?<=ab)c?(?!a)",
                              R"(\R)",
                              R"((?:\R){2})",
                              "(?:ab?){2}(?:the)??",
                              "a{0,250}b",
                              "a{250}b",
                              "(?=a{200}b)a",
                              "(?<=a{120}b|\nb)a",
                              R"((?<=aaaa|b\b)\s)",
                              "(?i:SS|\xC3\x9F)",
                              ".",
                              "",
                              "(?m:.{3})",
                              "[^a]{1,40}the",
                              R"((?<!a)(?:a|ab){1,3}+$)",
                              R"(\A.|^b?)",
                              R"([\S&&[^a]]{2,3}+\b)",
                              "a{2}{3}b",
                              "a{2}?b",
                              "a{2}+b",
                              "(?>a{1,3})b"}) {
    for (const std::string& text : texts) {
      EXPECT_EQ(found(spelled, text), found("(?:" + std::string(spelled) + ")|(?!)a+", text))
          << spelled << " in " << text.size() << " bytes";
    }
  }
}

}  // namespace
}  // namespace moracle
