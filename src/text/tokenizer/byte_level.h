// The byte alphabet of GPT-2: each byte is written as one printable character.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace moracle {

// Appends one character for every byte of `bytes`. Printable bytes of Latin-1 stand for themselves; the other 68, in
// ascending order, are U+0100 upwards.
void append_byte_level(std::string& out, std::string_view bytes);

// The byte that a character stands for; empty for characters outside the alphabet.
[[nodiscard]] std::optional<unsigned char> byte_of_character(char32_t code);

}  // namespace moracle
