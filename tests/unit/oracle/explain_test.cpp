#include "oracle/explain.h"

#include <gtest/gtest.h>

#include <set>

#include "base/json.h"
#include "unit/oracle/test_cards.h"

namespace moracle {
namespace {

using test::int4_problem;
using test::kTable;
using test::machine;

ExplainedLayer layer(std::string name, const Problem& problem, const char* host, const Policy& policy = {}) {
  return {.name = std::move(name), .problem = problem, .decision = decide(problem, machine(host), policy, kTable)};
}

std::vector<ExplainedGroup> two_groups(const char* host) {
  Problem linear = int4_problem();
  linear.kind = ProblemKind::linear;
  std::vector<ExplainedLayer> layers;
  for (int i = 0; i < 48; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i);
    layers.push_back(layer(prefix + ".self_attn.q_proj", linear, host));
    layers.push_back(layer(prefix + ".mlp.experts", int4_problem(), host));
    layers.push_back(layer(prefix + ".self_attn.o_proj", linear, host));
  }
  return group_layers(layers);
}

TEST(CompressNames, FoldsTheFirstNumber) {
  const auto folded = [](std::vector<std::string> names) { return compress_names(names); };
  using Names = std::vector<std::string>;
  EXPECT_EQ(folded({"a.0.x", "a.1.x", "a.3.x", "b"}), (Names{"a.{0-1,3}.x", "b"}));
  EXPECT_EQ(folded({"a.2.x", "a.0.x", "a.1.x"}), Names{"a.{0-2}.x"});
  EXPECT_EQ(folded({"a.7.x"}), Names{"a.7.x"});
  EXPECT_EQ(folded({"a.0.e.5", "a.1.e.5", "a.0.e.6"}), (Names{"a.{0-1}.e.5", "a.0.e.6"}));
  EXPECT_EQ(folded({"lm_head"}), Names{"lm_head"});
  EXPECT_EQ(folded({"3", "4"}), Names{"{3-4}"});
  EXPECT_EQ(folded({"a.007.x", "a.008.x"}), (Names{"a.007.x", "a.008.x"}));
  EXPECT_EQ(folded({"a.99999999999999999999.x"}), Names{"a.99999999999999999999.x"});
  EXPECT_EQ(folded({"a..x", "a.-1.x", ""}), (Names{"a..x", "a.-1.x", ""}));
  EXPECT_EQ(folded({"a.9223372036854775807.x", "a.9223372036854775806.x"}),
            Names{"a.{9223372036854775806-9223372036854775807}.x"});
  EXPECT_TRUE(compress_names({}).empty());
}

TEST(GroupLayers, OneGroupPerDistinctQuestion) {
  const auto groups = two_groups("zen4");
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].names.size(), 96U);
  EXPECT_EQ(groups[1].names.size(), 48U);
  EXPECT_EQ(groups[1].problem, int4_problem());
  EXPECT_EQ(compress_names(groups[0].names),
            (std::vector<std::string>{"model.layers.{0-47}.self_attn.q_proj", "model.layers.{0-47}.self_attn.o_proj"}));
}

TEST(ExplainJson, HasTheContractsShape) {
  Problem problem = int4_problem();
  problem.scheme.activation =
      QuantKey{.element = Element::int8, .scale = ScaleType::f32, .granularity = Granularity::token(), .dynamic = true};
  const std::vector<ExplainedLayer> layers{layer("a.0", int4_problem(), "zen3", {.preferred = "wide"}),
                                           layer("a.1", problem, "zen3")};
  const Json json = explain_json(group_layers(layers));
  ASSERT_EQ(json.size(), 2U);
  EXPECT_EQ(json[0]["names"], Json::array({"a.0"}));
  EXPECT_EQ(json[0]["scheme"], (Json{{"weight", "int4 g128 sym"}, {"activation", nullptr}}));
  EXPECT_EQ(json[0]["backend"], "narrow");
  EXPECT_EQ(json[0]["warnings"].size(), 1U);
  EXPECT_EQ(json[1]["scheme"]["activation"], "int8 token dynamic");
  EXPECT_TRUE(json[1]["backend"].is_null());
  EXPECT_TRUE(json[1]["warnings"].empty());
  EXPECT_EQ(json[0]["trace"][0], (Json{{"backend", "wide"},
                                       {"card", "t.wide"},
                                       {"supported", false},
                                       {"kind", "native"},
                                       {"reasons", Json::array({{{"rule", "device"},
                                                                 {"wanted", "cpu with avx2+avx512+avx512_bf16"},
                                                                 {"found", "cpu x86_64 with avx2"}}})}}));
  EXPECT_EQ(json[0]["trace"][2]["supported"], true);
  EXPECT_EQ(json[0]["trace"][2]["reasons"], Json::array());
}

TEST(Names, RulesAndKindsAreSpelledAsTheContractSays) {
  const std::set<std::string_view> contract{
      "device",    "quant_scheme", "activation", "no_act_and_mul", "shape",           "bias", "zero_points", "policy",
      "act_order", "override",     "not_built",  "source_layout",  "batch_invariance"};
  std::set<std::string_view> spelled;
  for (const Rule rule : {Rule::device, Rule::no_act_and_mul, Rule::activation, Rule::quant_scheme, Rule::zero_points,
                          Rule::act_order, Rule::bias, Rule::shape, Rule::source_layout, Rule::batch_invariance,
                          Rule::policy, Rule::override_, Rule::not_built})
    spelled.insert(rule.name);
  EXPECT_EQ(spelled, contract);
  EXPECT_EQ(CardKind::native.name, "native");
  EXPECT_EQ(CardKind::external.name, "external");
}

// What another engine's selection was asked beside the problem keeps layers apart.
TEST(GroupLayers, LayersThatWereAskedMoreAreApart) {
  std::vector<ExplainedLayer> layers{layer("a.0", int4_problem(), "zen4"), layer("a.1", int4_problem(), "zen4"),
                                     layer("a.2", int4_problem(), "zen4")};
  layers[1].also = "hash";
  const auto groups = group_layers(layers);
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].names, (std::vector<std::string>{"a.0", "a.2"}));
}

}  // namespace
}  // namespace moracle
