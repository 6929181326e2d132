#include "text/tokenizer/byte_level.h"

#include <array>

#include "base/unicode/utf8.h"

namespace moracle {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<std::int16_t, 324> byte{};  // by character, -1: none

  constexpr Alphabet() {
    byte.fill(-1);
    char32_t next = 256;
    for (int b = 0; b < 256; ++b) {
      const char32_t code = stands_for_itself(b) ? static_cast<char32_t>(b) : next++;
      character[static_cast<std::size_t>(b)] = code;
      byte[code] = static_cast<std::int16_t>(b);
    }
  }
};
constexpr Alphabet kAlphabet;

}  // namespace

void append_byte_level(std::string& out, std::string_view bytes) {
  for (const char c : bytes) unicode::append_utf8(out, kAlphabet.character[static_cast<unsigned char>(c)]);
}

std::optional<unsigned char> byte_of_character(char32_t code) {
  if (code >= kAlphabet.byte.size() || kAlphabet.byte[code] < 0) return std::nullopt;
  return static_cast<unsigned char>(kAlphabet.byte[code]);
}

}  // namespace moracle
