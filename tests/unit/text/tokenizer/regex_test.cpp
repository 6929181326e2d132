#include "text/tokenizer/search/regex.h"

#include <gtest/gtest.h>

#include <string_view>
#include <utility>
#include <vector>

#include "text/budgets.h"

namespace moracle {
namespace {

// A text without an address is as empty as any other; the compiled program must not read in front of it.
TEST(TextPattern, EmptyTextNeedsNoAddress) {
  for (const char* spelled : {"", "a*", "a{2}?b the cat|p {T +@|", "(?i:'s)|\\p{L}+|\\s+", "a|b||c", "\\b|x?$"}) {
    const auto pattern = TextPattern::regex(spelled);
    ASSERT_TRUE(pattern.ok()) << pattern.error().message();
    std::vector<std::vector<std::pair<std::size_t, std::size_t>>> found;
    for (const std::string_view text : {std::string_view(), std::string_view("")}) {
      Budget budget(kEncoding);
      Searcher searcher(budget);
      std::vector<MatchSpan> matches;
      const auto searched = pattern->find_all(text, searcher, matches);
      ASSERT_TRUE(searched.ok()) << spelled << ": " << searched.error().message();
      auto& spans = found.emplace_back();
      for (const MatchSpan& match : matches) spans.emplace_back(match.begin, match.end);
      for (const auto& [begin, end] : spans) EXPECT_TRUE(begin == 0 && end == 0) << spelled << ": " << end;
    }
    EXPECT_EQ(found[0], found[1]) << spelled;
  }
}

}  // namespace
}  // namespace moracle
