// The Unicode properties that text processing acts on. The version of every property is the one that Hugging
// Face `tokenizers` uses (see unicode_tables.h), so that both libraries cut a text at the same places.
#pragma once

#include <string>
#include <string_view>

#include "base/budget.h"
#include "base/unicode/utf8.h"

namespace moracle::unicode {

// General category, two letters: {'L', 'u'}, ..., {'C', 'n'}.
struct Category {
  char major = 'C';
  char minor = 'n';
};
[[nodiscard]] Category category(char32_t code);

[[nodiscard]] bool is_white_space(char32_t code);  // property White_Space
[[nodiscard]] bool is_numeric(char32_t code);      // categories Nd, Nl, No
[[nodiscard]] bool is_word(char32_t code);         // Alphabetic, M, Nd, Pc, Join_Control: \w of Unicode TR18
[[nodiscard]] bool is_punctuation(char32_t code);  // category P and the ASCII symbols
[[nodiscard]] bool is_accent(char32_t code);       // what StripAccents removes

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
// Writes the form of `text` to `out`, in linear time but for sorting runs of combining marks. False: the budget is
// spent.
[[nodiscard]] bool normalize(std::string_view text, NormalForm form, Budget& budget, std::string& out);

// Lower case of one code point appended to `out` (one code point, or two for U+0130). No context rules.
void append_lower(std::string& out, char32_t code);

}  // namespace moracle::unicode
