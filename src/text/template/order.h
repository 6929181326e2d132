// A stable merge sort of positions that stays in bounds whatever its comparison answers: comparing template values may
// fail halfway, and NaN has no order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace moracle::jinja {

template <class Less>
std::vector<std::size_t> stable_order(std::size_t count, Less less) {
  std::vector<std::size_t> order(count), merged(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t width = 1; width < count; width *= 2) {
    for (std::size_t begin = 0; begin < count; begin += 2 * width) {
      const auto at = [&](std::size_t offset) {
        return order.begin() + static_cast<std::ptrdiff_t>(std::min(begin + offset, count));
      };
      std::merge(at(0), at(width), at(width), at(2 * width), merged.begin() + static_cast<std::ptrdiff_t>(begin), less);
    }
    std::swap(order, merged);
  }
  return order;
}

}  // namespace moracle::jinja
