// Which expert gives way: properties of AgeingFrequency.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random/random.h"
#include "slots/policy.h"

namespace moracle {
namespace {

TEST(AgeingFrequency, GivesUpTheOneOfFewestUses) {
  AgeingFrequency policy(4, 1000);
  for (const std::size_t expert : {0U, 1U, 1U, 2U, 2U, 2U}) policy.use(expert);
  EXPECT_EQ(policy.least(std::vector<std::size_t>{0, 1, 2, 3}), 3U);
  EXPECT_EQ(policy.least(std::vector<std::size_t>{0, 1, 2}), 0U);
  EXPECT_EQ(policy.least(std::vector<std::size_t>{2, 1}), 1U);
}

TEST(AgeingFrequency, ForgetsWhatWasUsedLongAgo) {
  AgeingFrequency policy(2, 4);
  for (int i = 0; i < 20; ++i) policy.use(0);
  for (int i = 0; i < 3; ++i) policy.use(1);
  EXPECT_EQ(policy.least(std::vector<std::size_t>{0, 1}), 1U);
  for (int i = 0; i < 5; ++i) policy.use(1);
  EXPECT_EQ(policy.least(std::vector<std::size_t>{0, 1}), 0U);
}

// What it keeps has the order of counts that are halved outright.
TEST(AgeingFrequency, OrdersLikeCountsThatAreHalvedOutright) {
  constexpr std::size_t kExperts = 12;
  constexpr double kHalfLife = 30;
  Random random(7);
  AgeingFrequency policy(kExperts, kHalfLife);
  std::vector<double> counts(kExperts, 0.0);
  std::vector<std::size_t> all(kExperts);
  for (std::size_t e = 0; e < kExperts; ++e) all[e] = e;
  for (int i = 0; i < 4000; ++i) {
    const std::size_t used = random.below(static_cast<std::uint32_t>(random.below(kExperts) + 1));
    for (double& count : counts) count *= std::exp2(-1 / kHalfLife);
    policy.use(used);
    counts[used] += 1;
    const std::size_t least = policy.least(all);
    EXPECT_LE(counts[least], *std::ranges::min_element(counts) * (1 + 1e-9)) << i;
  }
}

}  // namespace
}  // namespace moracle
