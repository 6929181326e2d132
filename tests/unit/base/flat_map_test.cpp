#include "base/generic/flat_map.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace moracle {
namespace {

TEST(FlatMap, HoldsWhatAMapHolds) {
  std::mt19937_64 random(1);
  FlatMap<std::int32_t> map;
  std::map<std::uint64_t, std::int32_t> truth;
  EXPECT_EQ(map.find(0), nullptr);
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t key = random() % 8'000 << (random() % 3 * 20);
    map[key] = i;
    truth[key] = i;
  }
  EXPECT_EQ(map.size(), truth.size());
  for (const auto& [key, value] : truth) {
    const auto* found = map.find(key);
    ASSERT_NE(found, nullptr) << key;
    EXPECT_EQ(*found, value) << key;
    EXPECT_EQ(map.contains(key + 3'000'000'007), truth.contains(key + 3'000'000'007));
  }
}

TEST(FlatMap, GrowsAndReserves) {
  FlatMap<std::int32_t> map;
  map[7] = 1;
  map.reserve(1000);
  ASSERT_NE(map.find(7), nullptr);
  EXPECT_EQ(*map.find(7), 1);
  EXPECT_EQ(map[8], 0);
  EXPECT_EQ(map.size(), 2U);
}

}  // namespace
}  // namespace moracle
