#include "oracle/explain.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "unit/oracle/test_cards.h"

namespace moracle {
namespace {

using test::int4_problem;
using test::kTable;
using test::machine;

ExplainedLayer layer(std::string name, const Problem& problem, const char* host, const Policy& policy = {}) {
  return {std::move(name), problem, decide(problem, machine(host), policy, kTable)};
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

TEST(RenderExplain, ShortFormShowsTheWinnerAndWhatWasRankedAbove) {
  EXPECT_EQ(render_explain(two_groups("zen3"), {}),
            R"(model.layers.{0-47}.self_attn.q_proj
model.layers.{0-47}.self_attn.o_proj
  linear x96 [2048 -> 768]: int4 g128 sym, 16-bit activations -> narrow (1 other can, 2 cannot)
    wide    cannot    device: wanted cpu with avx2+avx512+avx512_bf16, found cpu x86_64 with avx2
    quick   cannot    policy: wanted policy fast, found policy exact
  * narrow  chosen    narrower
    (1 ranked below; --all shows them)

model.layers.{0-47}.mlp.experts
  experts x48 [128 experts, top-8, 2048 -> 768]: int4 g128 sym, 16-bit activations -> narrow (1 other can, 2 cannot)
    wide    cannot    device: wanted cpu with avx2+avx512+avx512_bf16, found cpu x86_64 with avx2
    quick   cannot    policy: wanted policy fast, found policy exact
  * narrow  chosen    narrower
    (1 ranked below; --all shows them)
)");
}

TEST(RenderExplain, AllShowsEveryReasonAligned) {
  Problem problem = int4_problem();
  problem.bias = true;
  const std::vector<ExplainedLayer> layers{layer("e", problem, "zen3", {.batch_invariant = true})};
  const auto groups = group_layers(layers);
  const std::string all = render_explain(groups, {.all = true});
  EXPECT_EQ(all, R"(e
  experts [128 experts, top-8, 2048 -> 768]: int4 g128 sym, 16-bit activations -> ref (0 others can, 3 cannot)
  warning: no optimised kernel can serve this layer: the reference kernel ref runs it, far slower
    wide    cannot    device: wanted cpu with avx2+avx512+avx512_bf16, found cpu x86_64 with avx2
                      bias: wanted no bias, found a bias
                      batch_invariance: wanted one accumulation order for every batch, found an order that depends on the batch
    quick   cannot    bias: wanted no bias, found a bias
                      batch_invariance: wanted one accumulation order for every batch, found an order that depends on the batch
                      policy: wanted policy fast, found policy exact
    narrow  cannot    bias: wanted no bias, found a bias
                      batch_invariance: wanted one accumulation order for every batch, found an order that depends on the batch
  * ref     chosen    scalar
)");
  EXPECT_NE(render_explain(groups, {}).find("found cpu x86_64 with avx2 (+2 more)"), std::string::npos);
}

TEST(RenderExplain, ColourOnlyWhenAsked) {
  const auto groups = two_groups("zen3");
  EXPECT_EQ(render_explain(groups, {}).find('\x1b'), std::string::npos);
  EXPECT_NE(render_explain(groups, {.color = true}).find("\x1b[32mchosen"), std::string::npos);
  EXPECT_EQ(render_explain({}, {}), "");
}

TEST(RenderExplain, NamesCannotDriveTheTerminal) {
  Problem problem = int4_problem();
  problem.source_layout = "gp\x1b[2Jtq";
  const std::vector<ExplainedLayer> layers{layer("evil\x1b]0;title\x07.0", problem, "zen4"),
                                           layer("tab\there\n", problem, "zen4", {.pinned = "x\x1b[31m"})};
  const std::string text = render_explain(group_layers(layers), {.all = true});
  for (const char c : text) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20) << static_cast<int>(c);
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
                                       {"kind", "own"},
                                       {"reasons", Json::array({{{"rule", "device"},
                                                                 {"wanted", "cpu with avx2+avx512+avx512_bf16"},
                                                                 {"found", "cpu x86_64 with avx2"}}})}}));
  EXPECT_EQ(json[0]["trace"][2]["supported"], true);
  EXPECT_EQ(json[0]["trace"][2]["reasons"], Json::array());
}

TEST(Names, RulesAreSpelledAsTheContractSays) {
  const std::set<std::string> contract{
      "device",  "quant_scheme", "activation",    "no_act_and_mul",  "parallel_config",     "activation_format",
      "shape",   "routing",      "bias",          "zero_points",     "act_order",           "dtype",
      "library", "policy",       "override",      "hash_routing",    "decomposed_required", "router_logits_dtype",
      "lora",    "not_built",    "source_layout", "batch_invariance"};
  std::set<std::string> spelled;
  for (int rule = 0; rule <= static_cast<int>(Rule::not_built); ++rule)
    spelled.emplace(to_string(static_cast<Rule>(rule)));
  EXPECT_EQ(spelled, contract);
  EXPECT_EQ(to_string(CardKind::decision_only), "decision_only");
  EXPECT_EQ(to_string(CardKind::foreign), "foreign");
  EXPECT_EQ(to_string(Routing::grouped_sigmoid_bias), "grouped_sigmoid_bias");
}

}  // namespace
}  // namespace moracle
