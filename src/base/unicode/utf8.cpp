#include "base/unicode/utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace moracle::unicode {
namespace {

// Length of the character that `lead` starts and the range its second byte must lie in; length 0: not a lead byte.
struct Lead {
  std::size_t size;
  unsigned char low, high;
};
constexpr Lead lead_of(unsigned char lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Decoded decode_longer(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const std::size_t size = lead_of(byte(0)).size;
  if (size <= 1 || text.size() - at < size) return {byte(0), 1};
  char32_t code = byte(0) & (0x7FU >> size);
  for (std::size_t i = 1; i < size; ++i) code = (code << 6) | (byte(i) & 0x3FU);
  return {code, size};
}

CharacterPrefix character_prefix(std::string_view text) {
  const Lead lead = lead_of(static_cast<unsigned char>(text[0]));
  std::size_t size = 1;
  for (; size < lead.size && size < text.size(); ++size) {
    const auto byte = static_cast<unsigned char>(text[size]);
    if (size == 1 ? byte < lead.low || byte > lead.high : !is_continuation(text[size])) break;
  }
  return {lead.size == 0 ? 0 : size, lead.size == size};
}

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

std::size_t utf8_length(std::string_view text, std::size_t at) {
  const CharacterPrefix prefix = character_prefix(text.substr(at, 4));
  return prefix.complete ? prefix.size : 0;
}

bool is_utf8(std::string_view text) {
  return !find_invalid_utf8(text);
}

Result<> check_utf8(std::string_view text) {
  const auto bad = find_invalid_utf8(text);
  if (!bad) return Ok{};
  return Error{.code = "text.utf8",
               .where = fmt::format("byte {}", *bad),
               .wanted = "well-formed UTF-8",
               .found = fmt::format("byte 0x{:02x}", static_cast<unsigned char>(text[*bad]))};
}

std::size_t find_bytes(std::string_view text, std::string_view wanted, std::size_t from) {
  // memmem is linear, where string_view::find may compare all of `wanted` at every place; in a short text it would do
  // little but make ready. A checked build looks at all that it is given each time, so it is given a window.
  constexpr std::size_t kShort = 64;
  if (text.size() <= kShort) return text.find(wanted, from);
  constexpr std::size_t kWindow = 4096;
  const std::size_t overlap = wanted.empty() ? 0 : wanted.size() - 1;
  while (from <= text.size()) {
    const std::string_view window = text.substr(from, kWindow + 2 * overlap);
    const void* const found = memmem(window.data(), window.size(), wanted.data(), wanted.size());
    if (found != nullptr) return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
    if (from + window.size() == text.size()) break;
    from += window.size() - overlap;
  }
  return std::string_view::npos;
}

void append_longer(std::string& out, char32_t code) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

char32_t next_point(std::string_view text, std::size_t* at) {
  const Decoded next = decode_at(text, *at);
  *at += next.size;
  return next.code;
}

std::size_t previous_point(std::string_view text, std::size_t at) {
  do {
    --at;
  } while (at > 0 && is_continuation(text[at]));
  return at;
}

std::size_t skip_points(std::string_view text, std::size_t at, std::int64_t count) {
  for (; count > 0 && at < text.size(); --count) {
    ++at;
    while (at < text.size() && is_continuation(text[at])) ++at;
  }
  return at;
}

std::size_t count_points(std::string_view text) {
  return text.size() - static_cast<std::size_t>(std::count_if(text.begin(), text.end(), is_continuation));
}

std::u32string to_points(std::string_view text) {
  std::u32string points;
  points.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) points.push_back(next_point(text, &at));
  return points;
}

std::string from_points(std::u32string_view points) {
  std::string text;
  text.reserve(points.size());
  for (const char32_t point : points) append_utf8(text, point);
  return text;
}

std::string shortened(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  while (most > 0 && is_continuation(text[most])) --most;
  return std::string(text.substr(0, most)) + "...";
}

}  // namespace moracle::unicode
