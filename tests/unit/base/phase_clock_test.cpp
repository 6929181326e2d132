#include "base/phase_clock.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <thread>

namespace moracle {
namespace {

double at(const PhaseClock::Seconds& seconds, Phase phase) {
  return seconds[static_cast<std::size_t>(phase)];
}

TEST(PhaseClockTest, TimeBelongsToThePhaseEnteredLast) {
  PhaseClock clock;
  clock.enter(Phase::experts);
  const auto begin = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  clock.enter(Phase::head);
  clock.enter(Phase::other);
  const std::chrono::duration<double> whole = std::chrono::steady_clock::now() - begin;
  const PhaseClock::Seconds seconds = clock.take();
  EXPECT_GE(at(seconds, Phase::experts), 0.005);
  EXPECT_LE(at(seconds, Phase::experts) + at(seconds, Phase::head), whole.count() + 1e-4);
  EXPECT_EQ(at(seconds, Phase::routing), 0.0);
}

TEST(PhaseClockTest, TakingStartsAnew) {
  PhaseClock clock;
  clock.enter(Phase::norms);
  clock.enter(Phase::other);
  clock.take();
  const PhaseClock::Seconds nothing = clock.take();
  EXPECT_EQ(std::accumulate(nothing.begin(), nothing.end(), 0.0), 0.0);
}

TEST(PhaseClockTest, EveryPhaseHasAName) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kPhases; ++i) names.insert(to_string(static_cast<Phase>(i)));
  EXPECT_EQ(names.size(), kPhases);
  EXPECT_EQ(names.count(""), 0U);
}

}  // namespace
}  // namespace moracle
