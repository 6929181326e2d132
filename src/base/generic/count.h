// A number of things, as containers count them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moracle {

// Numbers of things are signed where they are reckoned with, and never below 0 where they are counted.
[[nodiscard]] constexpr std::size_t count(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

}  // namespace moracle
