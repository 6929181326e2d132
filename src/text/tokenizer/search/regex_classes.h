// The character classes of a pattern as PCRE2 text, in the Unicode version of Oniguruma.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moracle {

// A set of characters: `items` may stand between brackets, each of `extra` is a complete one-character expression
// (sets that brackets cannot hold, such as a complement).
struct ClassText {
  std::string items;
  std::vector<std::string> extra;

  void add(const ClassText& other);
  // One expression that matches one character of the set (or, negated, one outside it).
  [[nodiscard]] std::string render(bool negated) const;
};

// "\x{...}": safe inside and outside of brackets.
[[nodiscard]] std::string code_text(char32_t code);

// \d \s \w \h and their complements (upper case); empty for any other letter.
[[nodiscard]] std::optional<ClassText> escape_class(char letter);

// \p{name}: a general category or a script, case and "_- " ignored; empty for any other name. `cased` tells the
// categories that a caseless match would change (Lu, Ll, Lt).
struct PropertyClass {
  ClassText text;
  bool cased = false;
};
[[nodiscard]] std::optional<PropertyClass> property_class(std::string_view name, bool negated);

// [:name:] inside brackets; empty for a name whose Unicode meaning we do not carry.
[[nodiscard]] std::optional<ClassText> posix_class(std::string_view name);

}  // namespace moracle
