#include "base/printable.h"

#include <cstdint>

#include <fmt/format.h>

#include "base/unicode/utf8.h"

namespace moracle {

namespace {

constexpr std::size_t kQuotedBytes = 160;

unsigned char byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

// What a terminal, or a reader's eye, would obey and not show.
bool acts(char32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0)          // C0, DEL, C1
         || code == 0x61C || code == 0x200E || code == 0x200F  // marks of direction
         || (code >= 0x2028 && code <= 0x202E)                 // separators, embeddings, overrides
         || (code >= 0x2066 && code <= 0x2069)                 // isolates
         || code == 0xFEFF;                                    // byte order mark
}

bool acts(std::string_view text, std::size_t at, std::size_t length) {
  return length == 0 || acts(unicode::decode_at(text, at).code);
}

std::string escaped(std::string_view bytes) {
  if (bytes == "\n") return "\\n";
  if (bytes == "\t") return "\\t";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); ++i) out += fmt::format("\\x{:02x}", byte_at(bytes, i));
  return out;
}

// Appends the printable form of `text` until `out` has `most` bytes; returns how much of `text` that was.
std::size_t append_printable(std::string_view text, std::size_t most, std::string& out) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t length = unicode::utf8_length(text, at);
    const std::string_view sequence = text.substr(at, length == 0 ? 1 : length);
    const std::string shown = acts(text, at, length) ? escaped(sequence) : std::string(sequence);
    if (out.size() + shown.size() > most) break;
    out += shown;
    at += sequence.size();
  }
  return at;
}

}  // namespace

std::string printable(std::string_view text, std::size_t most) {
  std::string out;
  if (append_printable(text, most, out) < text.size()) out += fmt::format("... ({} bytes)", text.size());
  return out;
}

std::string printable_path(std::string_view path) {
  if (path.size() <= kShownBytes) return printable(path, 4 * kShownBytes);
  std::size_t tail = path.size() - kShownBytes / 2;
  while (tail < path.size() && unicode::is_continuation(path[tail])) ++tail;
  std::string out;
  append_printable(path.substr(0, tail), kShownBytes / 2, out);
  return out + "..." + printable(path.substr(tail), 4 * kShownBytes);
}

std::string in_quotes(std::string_view name) {
  std::string out = "'";
  if (append_printable(name, kQuotedBytes, out) < name.size()) out += "...";
  return out + "'";
}

std::string printable_json(std::string_view json) {
  std::string out;
  std::size_t copied = 0;
  for (std::size_t at = 0; at < json.size();) {
    const std::size_t length = unicode::utf8_length(json, at);
    // White space between values is what people read the document by.
    const bool white = json[at] == '\n' || json[at] == '\t' || json[at] == '\r';
    if (length != 0 && !white && acts(json, at, length)) {
      out.append(json, copied, at - copied);
      out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(unicode::decode_at(json, at).code));
      copied = at + length;
    }
    at += length == 0 ? 1 : length;
  }
  return out.append(json, copied);
}

}  // namespace moracle
