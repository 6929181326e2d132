// Patterns of tokenizer.json are written in Oniguruma's Ruby syntax; this rewrites them for PCRE2.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace moracle {

// A pattern as PCRE2 spells it, and how many characters the search for a match at one place looks at.
struct PatternText {
  static constexpr std::size_t kUnbounded = std::size_t{1} << 20U;
  std::string text{};
  std::size_t ahead = kUnbounded;   // from the place on
  std::size_t behind = kUnbounded;  // before the place
};

// An equivalent PCRE2 pattern for UTF | UCP | MULTILINE with newline LF. Handled: literals and escapes, classes (also
// nested, negated, with && and POSIX names), \p{category or script}, \d \s \w \h \b \R, anchors, groups (all become
// non-capturing), look-around, atomic groups, inline flags i m x, greedy, lazy and possessive repeats with Ruby's
// meaning (x{2}+ repeats x{2}). Properties are widened to the Unicode version that Oniguruma is of, where PCRE2 is
// older. Error: "tokenizer.unsupported" with `found` naming the construct (back references, conditionals, \K, \G, \X,
// ...).
Result<PatternText> to_pcre2(std::string_view pattern);

}  // namespace moracle
