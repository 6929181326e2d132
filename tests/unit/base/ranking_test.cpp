#include "base/generic/ranking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace moracle {
namespace {

struct Number {
  int value = 0;
  int place = 0;

  [[nodiscard]] bool before(const Number& other) const {
    return value > other.value || (value == other.value && place < other.place);
  }
};

// With many equal ones among them, and in every order of offering.
TEST(Ranking, KeepsWhatSortingPutsFirst) {
  std::mt19937 rng(3);
  for (const std::size_t offered : {std::size_t{1}, std::size_t{7}, std::size_t{500}}) {
    for (const std::size_t kept : {std::size_t{1}, std::size_t{5}, std::size_t{64}}) {
      std::vector<Number> all(offered);
      for (std::size_t i = 0; i < offered; ++i)
        all[i] = {.value = static_cast<int>(rng() % 20), .place = static_cast<int>(i)};
      std::shuffle(all.begin(), all.end(), rng);
      std::vector<Number> first(kept);
      Ranking<Number> ranking(first);
      for (const Number& number : all) ranking.offer(number);
      const int last = offered < kept ? 0 : ranking.last().place;
      const std::size_t count = ranking.sort();
      std::sort(all.begin(), all.end(), [](const Number& a, const Number& b) { return a.before(b); });
      ASSERT_EQ(count, std::min(offered, kept));
      for (std::size_t i = 0; i < count; ++i) {
        EXPECT_EQ(first[i].value, all[i].value);
        EXPECT_EQ(first[i].place, all[i].place);
      }
      if (offered >= kept) {
        EXPECT_EQ(last, all[kept - 1].place);
      }
    }
  }
}

TEST(Ranking, OfNothingIsEmpty) {
  std::vector<Number> first(3);
  EXPECT_EQ(Ranking<Number>(first).sort(), 0U);
}

}  // namespace
}  // namespace moracle
