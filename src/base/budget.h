// What a stranger's file may make one call compute. One budget is handed through everything that the call does; each
// piece of work takes its price before it starts.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>

#include "base/result.h"

namespace moracle {

struct BudgetLimits {
  static constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t steps = kUnlimited;    // of some 100 ns: a node walked, an element, 128 bytes copied
  std::uint64_t bytes = kUnlimited;    // of all that is made, whether it is still there or not
  std::uint64_t matches = kUnlimited;  // of patterns, and the pieces and tokens that come of them
  std::chrono::microseconds time = std::chrono::hours(24);  // on the monotonic clock, from the budget's making

  // Of limits that are far from kUnlimited.
  [[nodiscard]] constexpr BudgetLimits times(std::uint64_t count) const {
    return {steps * count, bytes * count, matches * count, time * static_cast<std::int64_t>(count)};
  }
  [[nodiscard]] constexpr BudgetLimits plus(const BudgetLimits& more) const {
    return {steps + more.steps, bytes + more.bytes, matches + more.matches, time + more.time};
  }
};

class Budget {
 public:
  explicit Budget(const BudgetLimits& limits);

  // False: so much is not left, and from then on nothing is.
  [[nodiscard]] bool steps(std::uint64_t count) {
    if (count > slice_) return next_slice(count);
    slice_ -= count;
    return true;
  }
  [[nodiscard]] bool bytes(std::uint64_t count) { return take(count, &bytes_, Kind::bytes); }
  [[nodiscard]] bool matches(std::uint64_t count) { return take(count, &matches_, Kind::matches); }
  // Looks at the clock, which steps() does only now and then.
  [[nodiscard]] bool in_time();

  // For work that comes in parts: what each part may spend beside what is left. Time between pause() and resume() does
  // not count.
  void extend(const BudgetLimits& more);
  void pause() { paused_ = now(); }
  void resume() { deadline_ += now() - paused_; }

  [[nodiscard]] bool spent() const { return spent_ != Kind::none; }
  // What was asked for in vain: "more than 2000000 steps".
  [[nodiscard]] std::string found() const;
  // The error of a spent budget; the caller adds where it was.
  [[nodiscard]] Error error(std::string code) const;

 private:
  enum class Kind : std::uint8_t { none, steps, bytes, matches, time };
  using Nanoseconds = std::int64_t;

  static Nanoseconds now();
  bool next_slice(std::uint64_t count);
  bool take(std::uint64_t count, std::uint64_t* left, Kind kind) {
    if (count > *left) return end(kind);
    *left -= count;
    return true;
  }
  bool end(Kind kind);

  BudgetLimits limits_;
  std::uint64_t slice_ = 0;                // steps until the clock is looked at
  std::uint64_t steps_, bytes_, matches_;  // left, without the slice
  Nanoseconds deadline_, paused_ = 0;
  Kind spent_ = Kind::none;
};

}  // namespace moracle
