// Patterns of tokenizer.json are written in Oniguruma's Ruby syntax; this rewrites them for PCRE2.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace moracle {

// An equivalent PCRE2 pattern for UTF | UCP | MULTILINE with newline LF. Handled: literals and escapes, classes (also
// nested, negated, with && and POSIX names), \p{category or script}, \d \s \w \h \b \R, anchors, groups (all become
// non-capturing), look-around, atomic groups, inline flags i m x, greedy, lazy and possessive repeats with Ruby's
// meaning (x{2}+ repeats x{2}). Properties are widened to the Unicode version that Oniguruma is of, where PCRE2 is
// older. Error: "tokenizer.unsupported" with `found` naming the construct (back references, conditionals, \K, \G, \X,
// ...).
Result<std::string> to_pcre2(std::string_view pattern);

}  // namespace moracle
