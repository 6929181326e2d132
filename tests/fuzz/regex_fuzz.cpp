// Patterns of pre-tokenizers and normalizers: the input is a pattern, a byte 0, and the text that it is searched for
// in.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz_input.h"
#include "text/budgets.h"
#include "text/tokenizer/search/regex.h"
#include "text/unicode.h"

namespace {

using moracle::fuzz::require;

bool at_character(std::string_view text, std::size_t at) {
  return at == text.size() || (static_cast<unsigned char>(text[at]) & 0xC0U) != 0x80;
}

using Matches = std::vector<moracle::MatchSpan>;

moracle::Result<Matches> matches_of(const moracle::TextPattern& pattern, std::string_view text) {
  moracle::Budget budget(moracle::kEncoding);
  moracle::Searcher searcher(budget);
  Matches matches;
  const auto found = pattern.find_all(text, searcher, matches);
  if (!found.ok()) return found.error();
  return matches;
}

// One more alternative, which never matches, but looks at any number of characters, has a pattern searched for in
// another way.
void check_windows(std::string_view spelled, std::string_view text, const Matches& matches) {
  const auto pattern = moracle::TextPattern::regex("(?:" + std::string(spelled) + ")|(?!)a+");
  if (!pattern.ok()) return;
  const auto other = matches_of(*pattern, text);
  if (!other.ok()) return;
  require(matches.size() == other->size());
  for (std::size_t i = 0; i < matches.size(); ++i) {
    require(matches[i].begin == (*other)[i].begin && matches[i].end == (*other)[i].end);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parts = moracle::fuzz::parts_of(std::span(data, size), 2);
  if (moracle::unicode::find_invalid_utf8(parts[0]) || moracle::unicode::find_invalid_utf8(parts[1])) return 0;
  const auto pattern = moracle::TextPattern::regex(parts[0]);
  if (!pattern.ok()) {
    moracle::fuzz::check_error(pattern.error());
    return 0;
  }
  const auto found = matches_of(*pattern, parts[1]);
  if (!found.ok()) {
    moracle::fuzz::check_error(found.error());
    return 0;
  }
  std::size_t end = 0;
  for (const moracle::MatchSpan& match : *found) {
    require(match.begin >= end && match.end >= match.begin && match.end <= parts[1].size());
    require(at_character(parts[1], match.begin) && at_character(parts[1], match.end));
    end = match.end;
  }
  check_windows(parts[0], parts[1], *found);
  return 0;
}
