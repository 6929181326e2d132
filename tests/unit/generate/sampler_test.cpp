#include "generate/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace moracle {
namespace {

std::map<std::int32_t, int> draw(const SamplingOptions& options, const std::vector<float>& logits, int times) {
  Sampler sampler(options);
  std::map<std::int32_t, int> counts;
  for (int i = 0; i < times; ++i) {
    const auto id = sampler.sample(logits);
    EXPECT_TRUE(id.ok());
    if (id.ok()) ++counts[*id];
  }
  return counts;
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowestOfTies) {
  Sampler sampler({});
  EXPECT_EQ(*sampler.sample(std::vector<float>{1, 5, 5, 2}), 1);
  EXPECT_EQ(*sampler.sample(std::vector<float>{-INFINITY, -3, -2}), 2);
}

TEST(Sampler, RefusesNumbersThatAreNone) {
  for (const double temperature : {0.0, 1.0}) {
    Sampler sampler({.temperature = temperature});
    for (const float bad : {std::nanf(""), INFINITY}) {
      const auto id = sampler.sample(std::vector<float>{1, bad, 2});
      ASSERT_FALSE(id.ok());
      EXPECT_EQ(id.error().code, "numeric.nan");
      EXPECT_EQ(id.error().where, "logits[1]");
    }
    EXPECT_FALSE(sampler.sample(std::vector<float>{-INFINITY, -INFINITY}).ok());
    EXPECT_FALSE(sampler.sample(std::vector<float>{}).ok());
  }
}

// The top k alone give the choices that all logits give, ties at the last place included.
TEST(Sampler, ChoosesAlikeFromTheTopK) {
  std::vector<float> logits;
  for (int i = 0; i < 300; ++i) logits.push_back(static_cast<float>(i * 37 % 50) / 10.0F);
  std::vector<TokenLogit> ordered;
  for (const float logit : logits) ordered.push_back({logit, static_cast<std::int32_t>(ordered.size())});
  std::sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.before(b); });
  for (const SamplingOptions& options : {SamplingOptions{}, SamplingOptions{.temperature = 0.7, .top_k = 20},
                                         SamplingOptions{.temperature = 2.0, .top_k = 7, .top_p = 0.8, .min_p = 0.1}}) {
    Sampler all(options);
    Sampler few(options);
    const auto deciding = static_cast<std::size_t>(deciding_logits(options));
    for (int i = 0; i < 200; ++i)
      ASSERT_EQ(few.sample(std::span(ordered).first(deciding)), *all.sample(logits)) << deciding << " " << i;
  }
  EXPECT_EQ(deciding_logits({.temperature = 1.0, .top_p = 0.9}), 0);
  EXPECT_EQ(deciding_logits({.temperature = 1.0, .min_p = 0.1}), 0);
  EXPECT_EQ(deciding_logits({.temperature = 1.0}), 1) << "a draw from all is made with noise";
  EXPECT_TRUE(draws_from_all({.temperature = 1.0}));
}

// So do the 64 highest where min_p drops the last of them.
TEST(Sampler, ChoosesAlikeFromWhatMinPKeeps) {
  std::vector<float> logits;
  for (int i = 0; i < 300; ++i) logits.push_back(static_cast<float>(i * 37 % 50) / 10.0F);
  std::vector<TokenLogit> ordered;
  for (const float logit : logits) ordered.push_back({logit, static_cast<std::int32_t>(ordered.size())});
  std::sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.before(b); });
  const auto few = std::span(ordered).first(kMaxHeadTopK);
  for (const std::int64_t top_k : {0, 200}) {
    const SamplingOptions options{.temperature = 0.3, .top_k = top_k, .min_p = 0.1, .seed = 3};
    ASSERT_TRUE(min_p_decides(options));
    ASSERT_LT(std::exp((few.back().logit - few.front().logit) / 0.3), options.min_p);
    Sampler all(options);
    Sampler some(options);
    for (int i = 0; i < 200; ++i) ASSERT_EQ(some.sample(few), *all.sample(logits)) << i;
  }
  EXPECT_FALSE(min_p_decides({.temperature = 1.0}));
  EXPECT_FALSE(min_p_decides({.min_p = 0.1}));
  EXPECT_FALSE(min_p_decides({.temperature = 1.0, .top_k = 64, .min_p = 0.1})) << "the 64 decide alone";
  EXPECT_FALSE(min_p_decides({.temperature = 1.0, .top_p = 0.9, .min_p = 0.1})) << "top_p needs the mass of all";
  EXPECT_FALSE(min_p_decides({.temperature = 1.0, .min_p = 0.1, .repetition_penalty = 1.1}));
}

// Logits are looked through many at a time: no place may be missed, at the ends and beyond the last whole run neither.
TEST(Sampler, SeesEveryPlaceOfALongRow) {
  Sampler sampler({});
  std::vector<float> logits(200, -5.0F);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    logits[i] = 3.0F;
    EXPECT_EQ(*sampler.sample(logits), static_cast<std::int32_t>(i));
    for (const float bad : {std::nanf(""), INFINITY}) {
      logits[i] = bad;
      const auto id = sampler.sample(logits);
      ASSERT_FALSE(id.ok());
      EXPECT_EQ(id.error().where, "logits[" + std::to_string(i) + "]");
    }
    logits[i] = -5.0F;
  }
  logits[70] = logits[199] = 1.0F;
  EXPECT_EQ(*sampler.sample(logits), 70);
}

// 20,000 draws of known probabilities: the standard deviation of a share is at most sqrt(1/4/20000) = 0.0035, five of
// them are 0.018.
TEST(Sampler, FollowsTheSoftmax) {
  const std::vector<float> logits = {0.0F, std::log(2.0F), std::log(5.0F), -INFINITY};
  const auto counts = draw({.temperature = 1.0, .seed = 7}, logits, 20000);
  EXPECT_NEAR(counts.at(0) / 20000.0, 1.0 / 8, 0.018);
  EXPECT_NEAR(counts.at(1) / 20000.0, 2.0 / 8, 0.018);
  EXPECT_NEAR(counts.at(2) / 20000.0, 5.0 / 8, 0.018);
  EXPECT_EQ(counts.count(3), 0U);
}

TEST(Sampler, TemperatureSharpensAndFlattens) {
  const std::vector<float> logits = {0.0F, std::log(4.0F)};
  EXPECT_NEAR(draw({.temperature = 0.5, .seed = 1}, logits, 20000)[1] / 20000.0, 16.0 / 17, 0.018);
  EXPECT_NEAR(draw({.temperature = 2.0, .seed = 1}, logits, 20000)[1] / 20000.0, 2.0 / 3, 0.018);
}

TEST(Sampler, TopKKeepsTheLikeliestWithTiesToTheLowestId) {
  const std::vector<float> logits = {1, 3, 2, 3, 0};
  EXPECT_EQ(draw({.temperature = 1.0, .top_k = 1}, logits, 200).count(1), 1U);
  EXPECT_EQ(draw({.temperature = 1.0, .top_k = 1}, logits, 200).size(), 1U);
  const auto three = draw({.temperature = 5.0, .top_k = 3}, logits, 2000);
  EXPECT_EQ(three.size(), 3U);
  EXPECT_TRUE(three.count(1) == 1 && three.count(2) == 1 && three.count(3) == 1);
  EXPECT_EQ(draw({.temperature = 5.0, .top_k = 100}, logits, 5000).size(), 5U);
}

TEST(Sampler, TopPKeepsTheShortestSufficientPrefix) {
  // Probabilities 0.1, 0.2, 0.3, 0.4.
  const std::vector<float> logits = {std::log(1.0F), std::log(2.0F), std::log(3.0F), std::log(4.0F)};
  EXPECT_EQ(draw({.temperature = 1.0, .top_p = 0.39}, logits, 500).size(), 1U);
  EXPECT_EQ(draw({.temperature = 1.0, .top_p = 0.41}, logits, 2000).size(), 2U);
  EXPECT_EQ(draw({.temperature = 1.0, .top_p = 0.95}, logits, 5000).size(), 4U);
  EXPECT_EQ(draw({.temperature = 1.0, .top_p = 1e-9}, logits, 500).size(), 1U);
}

TEST(Sampler, TopPSortsOnlyWhatItNeedsButAsIfAll) {
  // 1000 equally likely tokens: half the mass is the 500 lowest ids, far beyond the first sorted head.
  const auto counts = draw({.temperature = 1.0, .top_p = 0.4995}, std::vector<float>(1000, 0.5F), 20000);
  EXPECT_LT(counts.rbegin()->first, 500);
  EXPECT_GT(counts.size(), 490U);
}

TEST(Sampler, MinPDropsTheUnlikely) {
  const std::vector<float> logits = {std::log(1.0F), std::log(2.0F), std::log(3.0F), std::log(10.0F)};
  EXPECT_EQ(draw({.temperature = 1.0, .min_p = 0.25}, logits, 3000).size(), 2U);
  EXPECT_EQ(draw({.temperature = 1.0, .min_p = 1.0}, logits, 300).size(), 1U);
  EXPECT_EQ(draw({.temperature = 1.0, .min_p = 0.0}, logits, 3000).size(), 4U);
}

TEST(Sampler, TheSameSeedGivesTheSameTokensAndAnotherDoesNot) {
  const std::vector<float> logits(50, 1.0F);
  const auto sequence = [&](std::uint64_t seed) {
    Sampler sampler({.temperature = 1.0, .seed = seed});
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 20; ++i) ids.push_back(*sampler.sample(logits));
    return ids;
  };
  EXPECT_EQ(sequence(3), sequence(3));
  EXPECT_NE(sequence(3), sequence(4));
}

TEST(Sampler, RandomNumbersAreTheSameEverywhere) {
  Random random(0);
  // SplitMix64 from state 0: the published sequence.
  EXPECT_EQ(random.next(), 0xE220A8397B1DCDAFULL);
  EXPECT_EQ(random.next(), 0x6E789E6AA1B965F4ULL);
  EXPECT_EQ(random.next(), 0x06C45D188009454FULL);
}

TEST(Sampler, RefusesOptionsOutOfRange) {
  const auto where = [](const SamplingOptions& options) {
    const auto result = check(options);
    return result.ok() ? std::string() : result.error().where;
  };
  const double nan = std::nan("");
  EXPECT_EQ(where({}), "");
  EXPECT_EQ(where({.temperature = nan}), "temperature");
  EXPECT_EQ(where({.temperature = -1}), "temperature");
  EXPECT_EQ(where({.temperature = INFINITY}), "temperature");
  EXPECT_EQ(where({.top_k = -1}), "top_k");
  EXPECT_EQ(where({.top_p = 0}), "top_p");
  EXPECT_EQ(where({.top_p = 1.01}), "top_p");
  EXPECT_EQ(where({.top_p = nan}), "top_p");
  EXPECT_EQ(where({.min_p = -0.1}), "min_p");
  EXPECT_EQ(where({.min_p = nan}), "min_p");
}

}  // namespace
}  // namespace moracle
