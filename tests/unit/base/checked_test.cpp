#include "base/checked.h"

#include <gtest/gtest.h>

#include <array>

namespace moracle {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();

TEST(Checked, MultiplicationStopsAtTheEdge) {
  EXPECT_EQ(checked_mul<std::int64_t>(kMax, 1), kMax);
  EXPECT_EQ(checked_mul<std::int64_t>(kMax / 2, 2), kMax - 1);
  EXPECT_FALSE(checked_mul<std::int64_t>(kMax / 2 + 1, 2).has_value());
  EXPECT_FALSE(checked_mul<std::int64_t>(kMin, -1).has_value());
  EXPECT_FALSE(checked_mul<std::uint64_t>(std::uint64_t{1} << 32, std::uint64_t{1} << 32).has_value());
  EXPECT_EQ(checked_mul<std::int64_t>(0, kMax), 0);
}

TEST(Checked, AdditionStopsAtTheEdge) {
  EXPECT_EQ(checked_add<std::int64_t>(kMax - 1, 1), kMax);
  EXPECT_FALSE(checked_add<std::int64_t>(kMax, 1).has_value());
  EXPECT_FALSE(checked_add<std::int64_t>(kMin, -1).has_value());
  EXPECT_FALSE(checked_add<std::uint8_t>(255, 1).has_value());
}

TEST(Checked, ProductOfDimensions) {
  const std::array<std::int64_t, 3> dims = {3, 4, 5};
  EXPECT_EQ(checked_product(std::span<const std::int64_t>(dims)), 60);
  EXPECT_EQ(checked_product(std::span<const std::int64_t>()), 1);
  // 4611686018427387905 * 4 is 4 modulo 2^64: the product that must not pass for a small one.
  const std::array<std::int64_t, 2> wraps = {4611686018427387905, 4};
  EXPECT_FALSE(checked_product(std::span<const std::int64_t>(wraps)).has_value());
}

TEST(Checked, CeilingAndRounding) {
  EXPECT_EQ(ceil_div(0, 4), 0);
  EXPECT_EQ(ceil_div(1, 4), 1);
  EXPECT_EQ(ceil_div(4, 4), 1);
  EXPECT_EQ(ceil_div(5, 4), 2);
  EXPECT_EQ(round_up(5, 4), 8);
  EXPECT_EQ(round_up(8, 4), 8);
}

}  // namespace
}  // namespace moracle
