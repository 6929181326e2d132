#include "base/budget.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace moracle {
namespace {

TEST(Budget, GivesWhatThereIsAndThenNothing) {
  Budget budget({.steps = 10'000, .bytes = 100, .matches = 3});
  EXPECT_TRUE(budget.steps(1));
  EXPECT_TRUE(budget.steps(9'998));
  EXPECT_TRUE(budget.bytes(100));
  EXPECT_TRUE(budget.matches(3));
  EXPECT_FALSE(budget.spent());
  EXPECT_TRUE(budget.steps(1));
  EXPECT_FALSE(budget.steps(1));
  EXPECT_TRUE(budget.spent());
  EXPECT_EQ(budget.found(), "more than 10000 steps");
}

TEST(Budget, WhatIsSpentFirstIsNamed) {
  Budget budget({.steps = 10, .bytes = 10, .matches = 10});
  EXPECT_FALSE(budget.bytes(11));
  EXPECT_FALSE(budget.steps(1));
  EXPECT_FALSE(budget.matches(1));
  EXPECT_FALSE(budget.in_time());
  EXPECT_EQ(budget.found(), "more than 10 bytes made");
  const Error error = budget.error("template.limit");
  EXPECT_EQ(error.code, "template.limit");
  EXPECT_EQ(error.found, budget.found());
}

TEST(Budget, SumsDoNotWrap) {
  Budget budget({.steps = 10, .bytes = 10});
  EXPECT_TRUE(budget.steps(10));
  EXPECT_FALSE(budget.steps(BudgetLimits::kUnlimited));
  Budget other({.bytes = 10});
  EXPECT_TRUE(other.bytes(10));
  EXPECT_FALSE(other.bytes(BudgetLimits::kUnlimited));
}

TEST(Budget, StepsLookAtTheClock) {
  Budget budget({.time = std::chrono::milliseconds(20)});
  EXPECT_TRUE(budget.steps(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  std::size_t steps = 0;
  while (steps < 100'000 && budget.steps(1)) ++steps;
  EXPECT_LT(steps, 10'000U);
  EXPECT_EQ(budget.found(), "more than 20 ms of computing");
  Budget late({.time = std::chrono::milliseconds(20)});
  EXPECT_TRUE(late.in_time());
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  EXPECT_FALSE(late.in_time());
}

TEST(Budget, PartsExtendIt) {
  Budget budget({.steps = 10, .bytes = 10, .matches = 10, .time = std::chrono::milliseconds(500)});
  EXPECT_TRUE(budget.steps(8));
  budget.extend({.steps = 5, .bytes = 1, .matches = 0, .time = std::chrono::milliseconds(1)});
  EXPECT_TRUE(budget.steps(7));
  EXPECT_TRUE(budget.bytes(11));
  EXPECT_FALSE(budget.bytes(1));
  EXPECT_EQ(budget.found(), "more than 11 bytes made");
  budget.extend({.steps = 100, .bytes = 100, .matches = 100});
  EXPECT_FALSE(budget.steps(1));
}

TEST(Budget, PausesDoNotCount) {
  Budget budget({.time = std::chrono::milliseconds(30)});
  budget.pause();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  budget.resume();
  EXPECT_TRUE(budget.in_time());
}

}  // namespace
}  // namespace moracle
