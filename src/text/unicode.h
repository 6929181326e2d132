// UTF-8 and the Unicode properties that text processing acts on. The version of every property is the one that Hugging
// Face `tokenizers` uses (see unicode_tables.h), so that both libraries cut a text at the same places.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/budget.h"
#include "base/result.h"

namespace moracle::unicode {

// One decoded code point and how many bytes it took.
struct Decoded {
  char32_t code = 0;
  std::size_t size = 0;
};

[[nodiscard]] Decoded decode_longer(std::string_view text, std::size_t at);  // decode_at of a byte of at least 0x80

// The code point at `at` (< text.size()) of well-formed UTF-8. Ill-formed bytes decode as themselves, one at a time.
[[nodiscard]] inline Decoded decode_at(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  return lead < 0x80 ? Decoded{lead, 1} : decode_longer(text, at);
}

// Byte offset of the first ill-formed sequence (overlong, surrogate, > U+10FFFF or cut off); empty when there is none.
[[nodiscard]] std::optional<std::size_t> find_invalid_utf8(std::string_view text);
// The same as an error: "text.utf8", with the offset.
Result<> check_utf8(std::string_view text);

// Number of bytes of the longest well-formed or still completable prefix of one character: `complete` says which.
// size 0: the first byte cannot start a character. Requires a non-empty text.
struct CharacterPrefix {
  std::size_t size = 0;
  bool complete = false;
};
[[nodiscard]] CharacterPrefix character_prefix(std::string_view text);

void append_utf8(std::string& out, char32_t code);

// std::string_view::find in linear time.
[[nodiscard]] std::size_t find_bytes(std::string_view text, std::string_view wanted, std::size_t from = 0);

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
