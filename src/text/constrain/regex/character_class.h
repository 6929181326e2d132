// What a class or an escape of a regular expression stands for.
#pragma once

#include <optional>

#include "text/constrain/regex/code_set.h"

namespace moracle {

// Dialects differ in what `\d`, `\w`, `\s` and `.` stand for: `least` has what all of them have, `most` what any has.
// What is left of everything without a class is everything without its `most`.
struct CharacterClass {
  CodeSet least;
  CodeSet most;

  void add(const CharacterClass& other);
  [[nodiscard]] CharacterClass complement() const { return {most.complement(), least.complement()}; }
};

// Of the letter behind a backslash: d, D, w, W, s, S; empty: it is none of them.
[[nodiscard]] std::optional<CharacterClass> class_of_letter(char32_t letter);
// Of `.`: everything but ends of lines.
[[nodiscard]] CharacterClass any_but_line_end();

}  // namespace moracle
