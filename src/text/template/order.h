// A stable merge sort of positions that stays in bounds whatever its comparison answers: comparing template values may
// fail halfway, and NaN has no order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace moracle::jinja {

// `less` of two positions is empty where it failed, and then so is the result.
template <class Less>
std::optional<std::vector<std::size_t>> stable_order(std::size_t count, Less less) {
  std::vector<std::size_t> order(count), merged(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t width = 1; width < count; width *= 2) {
    for (std::size_t begin = 0; begin < count; begin += 2 * width) {
      const std::size_t middle = std::min(begin + width, count), end = std::min(middle + width, count);
      std::size_t left = begin, right = middle, out = begin;
      while (left < middle && right < end) {
        const std::optional<bool> takes_right = less(order[right], order[left]);
        if (!takes_right) return std::nullopt;
        merged[out++] = order[*takes_right ? right++ : left++];
      }
      while (left < middle) merged[out++] = order[left++];
      while (right < end) merged[out++] = order[right++];
    }
    std::swap(order, merged);
  }
  return order;
}

}  // namespace moracle::jinja
