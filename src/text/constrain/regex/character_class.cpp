#include "text/constrain/regex/character_class.h"

namespace moracle {

namespace {

constexpr CodeRange kBeyondAscii{0x80, 0x10FFFF};

CharacterClass digits() {
  return {{{'0', '9'}}, {{'0', '9'}, kBeyondAscii}};
}

CharacterClass word() {
  const CodeSet ascii = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  CodeSet most = ascii;
  most.add(kBeyondAscii);
  return {ascii, most};
}

CharacterClass space() {
  return {{{'\t', '\r'}, {' ', ' '}},
          {{'\t', '\r'},
           {0x1C, 0x20},
           {0x85, 0x85},
           {0xA0, 0xA0},
           {0x1680, 0x1680},
           {0x180E, 0x180E},
           {0x2000, 0x200A},
           {0x2028, 0x2029},
           {0x202F, 0x202F},
           {0x205F, 0x205F},
           {0x3000, 0x3000},
           {0xFEFF, 0xFEFF}}};
}

}  // namespace

void CharacterClass::add(const CharacterClass& other) {
  least.add(other.least);
  most.add(other.most);
}

std::optional<CharacterClass> class_of_letter(char32_t letter) {
  switch (letter) {
    case 'd':
      return digits();
    case 'D':
      return digits().complement();
    case 'w':
      return word();
    case 'W':
      return word().complement();
    case 's':
      return space();
    case 'S':
      return space().complement();
    default:
      return std::nullopt;
  }
}

CharacterClass any_but_line_end() {
  return CharacterClass{{{'\n', '\n'}}, {{'\n', '\r'}, {0x1C, 0x1E}, {0x85, 0x85}, {0x2028, 0x2029}}}.complement();
}

}  // namespace moracle
