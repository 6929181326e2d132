// What a terminal shows in the end: lines that were wiped are gone, colours are spelled out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moracle::test {

// Carriage returns go to the start of the line, "\x1b[K" wipes from there, and what is written covers what was there.
// Colour sequences stay, with the escape character as "\e".
inline std::string screen_of(std::string_view text) {
  std::vector<std::string> cells;  // of the current line: a character, or a colour sequence in front of one
  std::string out;
  std::string colours;
  std::size_t column = 0;
  const auto end_line = [&] {
    std::string line;
    for (const std::string& cell : cells) line += cell;
    out += line + colours + "\n";
    cells.clear();
    colours.clear();
    column = 0;
  };
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '\r' || c == '\n') {
      if (c == '\n') end_line();
      column = 0;
      ++at;
      continue;
    }
    if (text.substr(at).starts_with("\x1b[K")) {
      cells.resize(std::min(cells.size(), column));
      at += 3;
      continue;
    }
    if (c == '\x1b') {
      const std::size_t end = std::min(text.find_first_not_of("0123456789;?[", at + 1), text.size() - 1);
      if (text[end] == 'm') colours += "\\e" + std::string(text.substr(at + 1, end - at));
      at = end + 1;
      continue;
    }
    std::size_t size = 1;
    while (at + size < text.size() && (static_cast<unsigned char>(text[at + size]) & 0xC0U) == 0x80U) ++size;
    if (column >= cells.size()) cells.resize(column + 1);
    cells[column++] = colours + std::string(text.substr(at, size));
    colours.clear();
    at += size;
  }
  if (!cells.empty() || !colours.empty()) end_line();
  return out;
}

}  // namespace moracle::test
