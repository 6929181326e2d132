#include "moe/routing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "support/route_row.h"

namespace moracle {
namespace {

using testing::ElementsAre;

struct Routed {
  bool finite = false;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

Routed run(RoutingSpec spec, const std::vector<float>& logits, const std::vector<float>& bias = {}) {
  spec.experts = static_cast<std::int64_t>(logits.size());
  Routed routed;
  routed.ids.resize(static_cast<std::size_t>(spec.top_k));
  routed.weights.resize(static_cast<std::size_t>(spec.top_k));
  routed.finite = test::route(spec, {.logits = logits, .bias = bias}, routed.ids, routed.weights);
  return routed;
}

RoutingSpec top(std::int64_t k, Routing method = Routing::softmax_topk_renorm) {
  return {.method = method, .top_k = k};
}

TEST(Routing, BestFirstAndTheLowerIndexAmongEquals) {
  EXPECT_THAT(run(top(3), {1, 3, 2, 3, 0}).ids, ElementsAre(1, 3, 2));
  EXPECT_THAT(run(top(4), {5, 5, 5, 5, 5}).ids, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(run(top(2, Routing::sigmoid), {0, 2, 2, 2}).ids, ElementsAre(1, 2));
  EXPECT_THAT(run(top(2, Routing::topk_softmax), {7, 7, 7}).ids, ElementsAre(0, 1));
}

TEST(Routing, AllExpertsAreChosen) {
  const Routed routed = run(top(3, Routing::softmax_topk), {0, 1, 2});
  EXPECT_THAT(routed.ids, ElementsAre(2, 1, 0));
  EXPECT_FLOAT_EQ(routed.weights[0] + routed.weights[1] + routed.weights[2], 1.0F);
}

// A spec that validate() refuses must still not make anything index with what was never found.
TEST(Routing, PlacesBeyondTheExpertsStayEmpty) {
  for (const Routing method : {Routing::softmax_topk, Routing::softmax_topk_renorm, Routing::topk_softmax,
                               Routing::sigmoid, Routing::sigmoid_bias_renorm, Routing::topk_sigmoid}) {
    const Routed routed = run(top(4, method), {0, 2});
    EXPECT_TRUE(routed.finite);
    EXPECT_THAT(routed.ids, ElementsAre(1, 0, -1, -1)) << to_string(method);
    EXPECT_GT(routed.weights[0], 0.0F) << to_string(method);
    EXPECT_EQ(routed.weights[2], 0.0F) << to_string(method);
    EXPECT_EQ(routed.weights[3], 0.0F) << to_string(method);
  }
  EXPECT_THAT(run(top(2, Routing::topk_softmax), {3}).weights, ElementsAre(1, 0));
}

TEST(Routing, FixedExpertsThatAreNoneStayEmpty) {
  const RoutingSpec spec{.method = Routing::hash, .experts = 3, .top_k = 4};
  const std::vector<float> logits{1, 2, 3};
  const std::vector<std::int32_t> fixed{2, 3, -7, 0};
  std::vector<std::int32_t> ids(4);
  std::vector<float> weights(4);
  EXPECT_TRUE(test::route(spec, {.logits = logits, .fixed = fixed}, ids, weights));
  EXPECT_THAT(ids, ElementsAre(2, -1, -1, 0));
  EXPECT_EQ(weights[1], 0.0F);
  EXPECT_EQ(weights[2], 0.0F);
  EXPECT_NEAR(weights[0] + weights[3], 1.0F, 1e-6F);
}

// They take no place among the ids, and what they weigh, renormalized and scaled with the others, is told apart.
TEST(Routing, ZeroExpertsPassWhatTheyWeigh) {
  RoutingSpec spec{.method = Routing::softmax_bias_renorm, .experts = 2, .top_k = 3, .renormalize = false};
  spec.zero_experts = 3;
  std::vector<float> logits;
  for (const float score : {0.1F, 0.2F, 0.4F, 0.05F, 0.25F}) logits.push_back(std::log(score));
  std::vector<std::int32_t> ids(3);
  std::vector<float> weights(3);
  float passed = -1.0F;
  ASSERT_TRUE(test::route(spec, {.logits = logits}, ids, weights, &passed));
  EXPECT_THAT(ids, ElementsAre(-1, -1, 1));
  EXPECT_THAT(weights, ElementsAre(0, 0, testing::FloatNear(0.2F, 1e-6F)));
  EXPECT_NEAR(passed, 0.65F, 1e-6F);
  spec.renormalize = true;
  spec.factor = 2.0F;
  const std::vector<float> bias{0, 0, -1, 0, 0};
  ASSERT_TRUE(test::route(spec, {.logits = logits, .bias = bias}, ids, weights, &passed));
  EXPECT_THAT(ids, ElementsAre(-1, 1, 0));
  EXPECT_NEAR(passed, 2.0F * 0.25F / 0.55F, 1e-6F);
  logits[1] = std::nanf("");
  ASSERT_FALSE(test::route(spec, {.logits = logits}, ids, weights, &passed));
  EXPECT_EQ(passed, 0.0F);
}

TEST(Routing, ValidateNamesTheMemberThatDoesNotFit) {
  const RoutingSpec good{.experts = 8, .top_k = 4, .groups = 4, .top_groups = 2};
  EXPECT_TRUE(validate(good).ok());
  const auto member = [&](auto change) {
    RoutingSpec spec = good;
    change(spec);
    const auto result = validate(spec);
    EXPECT_FALSE(result.ok());
    if (result.ok()) return std::string();
    EXPECT_EQ(result.error().code, "config.range");
    return result.error().where;
  };
  EXPECT_EQ(member([](RoutingSpec& s) { s.experts = 0; }), "experts");
  EXPECT_EQ(member([](RoutingSpec& s) { s.experts = -1; }), "experts");
  EXPECT_EQ(member([](RoutingSpec& s) { s.top_k = 0; }), "top_k");
  EXPECT_EQ(member([](RoutingSpec& s) { s.top_k = 5; }), "top_k");  // two groups have four
  EXPECT_EQ(member([](RoutingSpec& s) { s.groups = 3; }), "groups");
  EXPECT_EQ(member([](RoutingSpec& s) { s.groups = 0; }), "groups");
  EXPECT_EQ(member([](RoutingSpec& s) { s.groups = 16; }), "groups");
  EXPECT_EQ(member([](RoutingSpec& s) { s.top_groups = 5; }), "top_groups");
  EXPECT_EQ(member([](RoutingSpec& s) { s.top_groups = 0; }), "top_groups");
  EXPECT_EQ(member([](RoutingSpec& s) { s.zero_experts = 1; }), "zero_experts");  // of no group
  EXPECT_EQ(member([](RoutingSpec& s) { s.zero_experts = -1; }), "zero_experts");
  for (const float factor : {0.0F, -1.0F, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    EXPECT_EQ(member([&](RoutingSpec& s) { s.factor = factor; }), "factor");
  }
}

TEST(Routing, LogitsThatAreNotFiniteChooseNobody) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    const Routed routed = run(top(2), {0, bad, 1});
    EXPECT_FALSE(routed.finite);
    EXPECT_THAT(routed.ids, ElementsAre(-1, -1));
    EXPECT_THAT(routed.weights, ElementsAre(0, 0));
  }
}

TEST(Routing, ExtremeLogitsKeepFiniteWeights) {
  for (const Routing method :
       {Routing::softmax_topk, Routing::softmax_topk_renorm, Routing::topk_softmax, Routing::sigmoid,
        Routing::sigmoid_renorm, Routing::sqrtsoftplus_bias, Routing::topk_sigmoid, Routing::grouped_softmax}) {
    for (const float size : {1e30F, -1e30F, 3e38F, -3e38F}) {
      const Routed routed = run(top(2, method), {size, size, -size, 0});
      EXPECT_TRUE(routed.finite);
      for (const float weight : routed.weights) EXPECT_TRUE(std::isfinite(weight)) << to_string(method) << " " << size;
    }
  }
}

TEST(Routing, ScoresThatUnderflowWeighNothing) {
  const Routed routed = run(top(2, Routing::sigmoid_renorm), {-300, -300, -300});
  EXPECT_THAT(routed.ids, ElementsAre(0, 1));
  EXPECT_THAT(routed.weights, ElementsAre(0, 0));
}

TEST(Routing, BiasChoosesButDoesNotWeigh) {
  const Routed routed = run(top(1, Routing::sigmoid_bias_renorm), {0, 1, 2}, {10, 0, 0});
  EXPECT_THAT(routed.ids, ElementsAre(0));
  EXPECT_FLOAT_EQ(routed.weights[0], 1.0F);
  RoutingSpec open = top(1, Routing::sigmoid_bias_renorm);
  open.renormalize = false;
  open.factor = 2.5F;
  EXPECT_FLOAT_EQ(run(open, {0, 1, 2}, {10, 0, 0}).weights[0], 0.5F * 2.5F);
}

TEST(Routing, GroupsOutsideTheBestAreOut) {
  RoutingSpec spec = top(2, Routing::grouped_sigmoid_bias);
  spec.groups = 2;
  spec.top_groups = 1;
  // Group 0 holds the best single score, group 1 the best pair.
  EXPECT_THAT(run(spec, {5, -9, 2, 2}).ids, ElementsAre(2, 3));
  spec.method = Routing::grouped_softmax;
  EXPECT_THAT(run(spec, {5, -9, 2, 2}).ids, ElementsAre(0, 1));
}

TEST(Routing, TopkSigmoidWeighsBySigmoidOfTheLogit) {
  const Routed routed = run(top(1, Routing::topk_sigmoid), {-1, 2, 0});
  EXPECT_THAT(routed.ids, ElementsAre(1));
  EXPECT_FLOAT_EQ(routed.weights[0], 1.0F / (1.0F + std::exp(-2.0F)));
}

}  // namespace
}  // namespace moracle
