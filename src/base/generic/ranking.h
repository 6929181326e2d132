// The first few of many, without memory of its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace moracle {

// Keeps those of the offered T that come before all others, by T::before, as many as `kept` has room for.
template <class T>
class Ranking {
 public:
  explicit Ranking(std::span<T> kept) : kept_(kept) {}

  void offer(const T& offered) {
    if (count_ == kept_.size()) {
      if (!offered.before(kept_.front())) return;  // a heap with the last in front
      std::pop_heap(kept_.begin(), kept_.end(), before);
      --count_;
    }
    kept_[count_++] = offered;
    std::push_heap(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(count_), before);
  }
  // The last of what is kept: none that it comes before would be. Once as many were offered as there is room for.
  [[nodiscard]] const T& last() const { return kept_.front(); }
  // Brings what was kept into order; nothing may be offered after that. Returns how many there are.
  std::size_t sort() {
    std::sort_heap(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(count_), before);
    return count_;
  }

 private:
  static bool before(const T& a, const T& b) { return a.before(b); }

  std::span<T> kept_;
  std::size_t count_ = 0;
};

}  // namespace moracle
