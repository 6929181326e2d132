#include "base/random/gumbel.h"

#include <gtest/gtest.h>

#include <cmath>

namespace moracle {
namespace {

// Of a standard Gumbel distribution: mean 0.5772, variance pi^2 / 6, P(g < 0) = 1 / e.
TEST(Gumbel, HasItsMomentsUnderAnySeed) {
  constexpr int kDraws = 100000;
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
    double sum = 0;
    double squares = 0;
    int below = 0;
    for (std::uint64_t i = 0; i < kDraws; ++i) {
      const double g = gumbel(seed, i);
      sum += g;
      squares += g * g;
      below += g < 0 ? 1 : 0;
    }
    const double mean = sum / kDraws;
    EXPECT_NEAR(mean, 0.57722, 0.02);  // five standard errors
    EXPECT_NEAR(squares / kDraws - mean * mean, 1.64493, 0.06);
    EXPECT_NEAR(below / static_cast<double>(kDraws), std::exp(-1.0), 0.008);
  }
}

TEST(Gumbel, BoundIsABoundAndTight) {
  double excess = 0;
  for (std::uint64_t i = 0; i < 200000; ++i) {
    const double g = gumbel(5, i);
    const double bound = gumbel_bound(5, i);
    ASSERT_GE(bound, g) << i;
    if (g > 3) {
      ASSERT_LE(bound, g + 0.75) << i;
    }
    excess += bound - g;
  }
  EXPECT_LT(excess / 200000, 1.5);
}

}  // namespace
}  // namespace moracle
