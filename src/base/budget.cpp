#include "base/budget.h"

#include <time.h>

#include <algorithm>

namespace moracle {
namespace {

// Steps between two looks at the clock, well below a millisecond.
constexpr std::uint64_t kSlice = 4096;

}  // namespace

Budget::Budget(const BudgetLimits& limits)
    : limits_(limits),
      steps_(limits.steps),
      bytes_(limits.bytes),
      matches_(limits.matches),
      deadline_(now() + std::chrono::nanoseconds(limits.time).count()) {}

// The coarse clock ticks every few milliseconds and costs a few nanoseconds, so that every search can look at it.
Budget::Nanoseconds Budget::now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return static_cast<Nanoseconds>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

bool Budget::in_time() {
  if (spent()) return false;
  return now() <= deadline_ || end(Kind::time);
}

bool Budget::next_slice(std::uint64_t count) {
  if (!in_time()) return false;
  if (count - slice_ > steps_) return end(Kind::steps);
  steps_ -= count - slice_;
  slice_ = std::min(steps_, kSlice);
  steps_ -= slice_;
  return true;
}

void Budget::extend(const BudgetLimits& more) {
  if (spent()) return;
  limits_ = limits_.plus(more);
  steps_ += more.steps;
  bytes_ += more.bytes;
  matches_ += more.matches;
  deadline_ += std::chrono::nanoseconds(more.time).count();
}

bool Budget::end(Kind kind) {
  if (!spent()) spent_ = kind;
  slice_ = steps_ = bytes_ = matches_ = 0;
  return false;
}

std::string Budget::found() const {
  switch (spent_) {
    case Kind::none:
      return "work within the budget";
    case Kind::steps:
      return "more than " + std::to_string(limits_.steps) + " steps";
    case Kind::bytes:
      return "more than " + std::to_string(limits_.bytes) + " bytes made";
    case Kind::matches:
      return "more than " + std::to_string(limits_.matches) + " matches";
    case Kind::time:
      return "more than " + std::to_string(limits_.time.count() / 1000) + " ms of computing";
  }
  return {};
}

Error Budget::error(std::string code) const {
  return {.code = std::move(code), .wanted = "work within the budget", .found = found()};
}

}  // namespace moracle
