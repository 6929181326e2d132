// Which calls a test of failures lets fail.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace moracle::test {

struct ChosenCalls {
  std::int64_t first = 1;
  std::int64_t last = 0;
  std::int64_t stride = 1;
};

// Of calls 1 to `calls`: about `some`, evenly spread. MORACLE_FAILURES chooses "all", or "9031-18250": these.
inline ChosenCalls chosen_calls(std::int64_t calls, std::int64_t some) {
  const char* const wish = std::getenv("MORACLE_FAILURES");
  const std::string_view text = wish != nullptr ? wish : "";
  if (text == "all") return {.last = calls};
  ChosenCalls range;
  const char* const end = text.data() + text.size();
  const auto from = std::from_chars(text.data(), end, range.first);
  if (from.ec == std::errc{} && from.ptr != end && *from.ptr == '-' &&
      std::from_chars(from.ptr + 1, end, range.last).ec == std::errc{}) {
    return {.first = std::max<std::int64_t>(1, range.first), .last = std::min(range.last, calls)};
  }
  return {.last = calls, .stride = std::max<std::int64_t>(1, calls / some)};
}

}  // namespace moracle::test
