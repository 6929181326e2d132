#include "fuzz_input.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/unicode/utf8.h"

namespace moracle::fuzz {

void require(bool holds) {
  if (!holds) std::abort();
}

void check_error(const Error& error) {
  require(!error.code.empty() && !(error.wanted.empty() && error.found.empty()));
  const std::string message = error.message();
  require(message.size() <= kMessageBytes && unicode::is_utf8(message));
  require(std::ranges::none_of(message, [](char c) { return (c >= 0 && c < ' ' && c != '\n') || c == 0x7F; }));
}

std::vector<std::string_view> parts_of(std::span<const std::uint8_t> input, std::size_t count) {
  std::string_view rest(reinterpret_cast<const char*>(input.data()), input.size());
  std::vector<std::string_view> parts(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t end = i + 1 < count ? rest.find('\0') : std::string_view::npos;
    parts[i] = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  return parts;
}

}  // namespace moracle::fuzz
