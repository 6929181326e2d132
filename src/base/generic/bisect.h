// The border between numbers that fit and larger ones that do not.
#pragma once

#include <cstdint>

namespace moracle {

// The largest of [1, most] for which `fits` holds, as it does for all smaller ones; 0 where there is none.
template <class Fits>
[[nodiscard]] std::int64_t largest_that(std::int64_t most, const Fits& fits) {
  std::int64_t found = 0;
  for (std::int64_t end = most + 1; end - found > 1;) {
    const std::int64_t middle = found + (end - found) / 2;
    (fits(middle) ? found : end) = middle;
  }
  return found;
}

}  // namespace moracle
