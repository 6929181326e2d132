// UTF-8: reading, checking, walking and writing code points.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace moracle::unicode {

// Whether a character goes on with this byte.
[[nodiscard]] constexpr bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
}

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

// Length of the well-formed sequence that starts at `at`, or 0: no overlong form, no surrogate, nothing above U+10FFFF
// (Unicode standard, table 3-7).
[[nodiscard]] std::size_t utf8_length(std::string_view text, std::size_t at);
[[nodiscard]] bool is_utf8(std::string_view text);

void append_longer(std::string& out, char32_t code);  // append_utf8 of a code point of at least 0x80
inline void append_utf8(std::string& out, char32_t code) {
  if (code < 0x80) {
    out.push_back(static_cast<char>(code));
  } else {
    append_longer(out, code);
  }
}

// Of well-formed UTF-8. Reads the code point at `at` (< text.size()) and moves `at` behind it.
char32_t next_point(std::string_view text, std::size_t* at);
// Start of the code point that ends at `at` (> 0).
[[nodiscard]] std::size_t previous_point(std::string_view text, std::size_t at);
// The place `count` code points behind `at`, or the end.
[[nodiscard]] std::size_t skip_points(std::string_view text, std::size_t at, std::int64_t count);
[[nodiscard]] std::size_t count_points(std::string_view text);
[[nodiscard]] std::u32string to_points(std::string_view text);
[[nodiscard]] std::string from_points(std::u32string_view points);
// The text, or its first `most` bytes at most, cut between characters and marked with "...".
[[nodiscard]] std::string shortened(std::string_view text, std::size_t most);

// std::string_view::find in linear time.
[[nodiscard]] std::size_t find_bytes(std::string_view text, std::string_view wanted, std::size_t from = 0);

}  // namespace moracle::unicode
