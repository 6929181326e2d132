// Regular expressions that replies are held to, read into a tree.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/constrain/regex/code_set.h"

namespace moracle {

struct RegexNode {
  enum class Kind : std::uint8_t {
    set,       // one character of `set`; an empty set matches nothing
    sequence,  // `parts` in order; none: the empty text
    either,    // one of `parts`
    repeat,    // `parts` has one, `least` to `most` times
  };

  Kind kind = Kind::sequence;
  CodeSet set{};
  std::vector<RegexNode> parts{};
  std::int64_t least = 0;
  std::optional<std::int64_t> most{};  // empty: any number
};

// An alternative of the whole expression, and whether it must begin and end where the text does.
struct RegexBranch {
  bool from_start = false;
  bool to_end = false;
  RegexNode body{};
};

struct Regex {
  std::vector<RegexBranch> branches;
};

// Reads what ECMA 262, Python and PCRE spell and mean alike; where they differ, a class gets the characters that all of
// them give it. `^` and `$` may stand at the ends of an alternative of the whole. Errors, with the byte:
// "regex.syntax", "regex.unsupported" (look-around, references to groups, `\b`, `\p`, modes), "constrain.complex" (64
// groups deep, kMostRepeats).
Result<Regex> parse_regex(std::string_view utf8);

// Repeats multiplied out.
inline constexpr std::int64_t kMostRepeats = 20'000;

// The expression as one node that the whole text matches: what has no anchor is preceded or followed by any text.
[[nodiscard]] RegexNode searched(const Regex& regex);
// The same, where an expression stands for the whole text.
[[nodiscard]] RegexNode whole(const Regex& regex);

// How many characters a text of `node` has.
struct LengthRange {
  std::int64_t least = 0;
  std::optional<std::int64_t> most{};  // empty: any number
};
[[nodiscard]] LengthRange length_of(const RegexNode& node);
// The node with texts of `least` to `most` characters alone; empty: the tree has no such form.
[[nodiscard]] std::optional<RegexNode> bounded(const RegexNode& node, LengthRange range);

// The node's texts that have no character of the set.
[[nodiscard]] RegexNode without(RegexNode node, const CodeSet& set);

// Whether the whole of a text matches.
[[nodiscard]] bool matches(const RegexNode& node, std::string_view utf8);

}  // namespace moracle
