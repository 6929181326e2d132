// Which tokens may come next.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "text/constrain/least_tokens.h"

namespace moracle {
namespace {

constexpr std::uint32_t kAll = ~std::uint32_t{0};

TEST(LeastTokens, EndsComeBehindSoManyOthers) {
  LeastTokens two({5, 31, 32}, 2);
  for (int token = 0; token < 2; ++token) {
    EXPECT_FALSE(two.allows_all());
    std::array<std::uint32_t, 3> mask = {kAll, kAll, kAll};
    two.narrow(mask);
    EXPECT_EQ(mask, (std::array<std::uint32_t, 3>{kAll & ~(1U << 5U) & ~(1U << 31U), kAll & ~1U, kAll}));
    two.advance(7);
  }
  EXPECT_TRUE(two.allows_all());
  std::array<std::uint32_t, 3> mask = {kAll, kAll, kAll};
  two.narrow(mask);
  EXPECT_EQ(mask, (std::array<std::uint32_t, 3>{kAll, kAll, kAll}));
}

TEST(LeastTokens, AMaskIsNarrowedAndNeverWidened) {
  const LeastTokens one({3}, 1);
  std::array<std::uint32_t, 1> mask = {0b11001U};
  one.narrow(mask);
  EXPECT_EQ(mask[0], 0b10001U);
  one.narrow(mask);
  EXPECT_EQ(mask[0], 0b10001U);
}

TEST(LeastTokens, IdsThatNoMaskHasAreLeftOut) {
  const LeastTokens one({-1, 32, 2147483647, 0}, 1);
  std::array<std::uint32_t, 1> mask = {kAll};
  one.narrow(mask);
  EXPECT_EQ(mask[0], kAll & ~1U);
}

TEST(LeastTokens, WithoutEndsOrALeastNumberAllMayCome) {
  EXPECT_TRUE(LeastTokens({}, 5).allows_all());
  EXPECT_TRUE(LeastTokens({1}, 0).allows_all());
}

}  // namespace
}  // namespace moracle
