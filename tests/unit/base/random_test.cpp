#include "base/random/random.h"

#include <gtest/gtest.h>

namespace moracle {
namespace {

TEST(Random, NumbersAreTheSameEverywhere) {
  Random random(0);
  // SplitMix64 from state 0: the published sequence.
  EXPECT_EQ(random.next(), 0xE220A8397B1DCDAFULL);
  EXPECT_EQ(random.next(), 0x6E789E6AA1B965F4ULL);
  EXPECT_EQ(random.next(), 0x06C45D188009454FULL);
}

}  // namespace
}  // namespace moracle
