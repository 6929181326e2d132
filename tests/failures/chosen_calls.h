// Which calls a test of failures lets fail.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

namespace moracle::test {

inline std::string_view wished_calls() {
  const char* const wish = std::getenv("MORACLE_FAILURES");
  return wish != nullptr ? wish : "";
}

// Whether to note stacks of callers (note_callers) while calls are counted.
inline bool chosen_by_callers() {
  return wished_calls() == "callers";
}

// Those that were noted, else of calls 1 to `calls` about `some`, evenly spread; MORACLE_FAILURES chooses "all", or
// "9031-18250": these.
inline std::vector<std::int64_t> chosen_calls(std::int64_t calls, std::int64_t some,
                                              std::span<const std::int64_t> noted = {}) {
  if (!noted.empty()) return {noted.begin(), noted.end()};
  const std::string_view text = wished_calls();
  std::int64_t first = 1;
  std::int64_t last = calls;
  std::int64_t stride = text == "all" ? 1 : std::max<std::int64_t>(1, calls / some);
  std::int64_t from = 0;
  std::int64_t to = 0;
  const char* const end = text.data() + text.size();
  const auto dash = std::from_chars(text.data(), end, from);
  if (dash.ec == std::errc{} && dash.ptr != end && *dash.ptr == '-' &&
      std::from_chars(dash.ptr + 1, end, to).ec == std::errc{}) {
    first = std::max<std::int64_t>(1, from);
    last = std::min(to, calls);
    stride = 1;
  }
  std::vector<std::int64_t> chosen;
  for (std::int64_t at = first; at <= last; at += stride) chosen.push_back(at);
  return chosen;
}

}  // namespace moracle::test
