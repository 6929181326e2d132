// Every rule is produced by a corner, and by that corner alone.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <set>

#include "unit/oracle/test_cards.h"

namespace moracle {
namespace {

using test::int4_problem;
using test::kNarrow;
using test::machine;

constexpr std::array kHopper{DeviceRule{.device = DeviceKind::cuda, .min_capability = 90, .max_capability = 90}};

struct Corner {
  const char* name;
  Rule rule;
  std::function<void(Problem&, Machine&, Policy&, KernelCard&)> change;
};

const Corner kCorners[] = {
    {"cpu without the feature", Rule::device, [](auto&, Machine& m, auto&, auto&) { m = machine("generic-x86-64"); }},
    {"gpu", Rule::device, [](auto&, Machine& m, auto&, auto&) { m = machine("h200"); }},
    {"other capability", Rule::device,
     [](auto&, Machine& m, auto&, KernelCard& c) {
       m = machine("b200");
       c.devices = kHopper;
     }},
    {"activation", Rule::activation, [](Problem& p, auto&, auto&, auto&) { p.activation.fn = ActivationFn::situ; }},
    {"element", Rule::quant_scheme, [](Problem& p, auto&, auto&, auto&) { p.scheme.weight.element = Element::int8; }},
    {"group width", Rule::quant_scheme,
     [](Problem& p, auto&, auto&, auto&) { p.scheme.weight.granularity = Granularity::group(48); }},
    {"scale type", Rule::quant_scheme,
     [](Problem& p, auto&, auto&, auto&) { p.scheme.weight.scale = ScaleType::e8m0; }},
    {"asymmetric channel", Rule::quant_scheme,
     [](Problem& p, auto&, auto&, auto&) {
       p.scheme.weight.granularity = Granularity::channel();
       p.scheme.weight.symmetric = false;
     }},
    {"second level", Rule::quant_scheme, [](Problem& p, auto&, auto&, auto&) { p.scheme.weight.second_level = true; }},
    {"quantized activations", Rule::quant_scheme,
     [](Problem& p, auto&, auto&, auto&) {
       p.scheme.activation = QuantKey{
           .element = Element::e4m3, .scale = ScaleType::f32, .granularity = Granularity::token(), .dynamic = true};
     }},
    {"unquantized", Rule::quant_scheme, [](Problem& p, auto&, auto&, auto&) { p.scheme.weight = QuantKey{}; }},
    {"zero points", Rule::zero_points,
     [](Problem& p, auto&, auto&, KernelCard& c) {
       p.zero_points = true;
       c.zero_points = false;
     }},
    {"act order", Rule::act_order, [](Problem& p, auto&, auto&, auto&) { p.act_order = true; }},
    {"an order of up's own", Rule::act_order,
     [](Problem& p, auto&, auto&, KernelCard& c) {
       p.act_order = p.own_up_order = true;
       c.act_order = true;
     }},
    {"bias", Rule::bias, [](Problem& p, auto&, auto&, auto&) { p.bias = true; }},
    {"hidden", Rule::shape, [](auto&, auto&, auto&, KernelCard& c) { c.hidden_multiple = 4096; }},
    {"no hidden", Rule::shape, [](Problem& p, auto&, auto&, auto&) { p.hidden = 0; }},
    {"negative intermediate", Rule::shape, [](Problem& p, auto&, auto&, auto&) { p.intermediate = -768; }},
    {"intermediate", Rule::shape, [](auto&, auto&, auto&, KernelCard& c) { c.intermediate_multiple = 512; }},
    {"experts above", Rule::shape, [](Problem& p, auto&, auto&, KernelCard& c) { c.max_experts = p.experts - 1; }},
    {"top-k above", Rule::shape, [](Problem& p, auto&, auto&, auto&) { p.top_k = 65; }},
    {"top-k below", Rule::shape, [](Problem& p, auto&, auto&, auto&) { p.top_k = 0; }},
    {"kind", Rule::shape, [](auto&, auto&, auto&, KernelCard& c) { c.serves_experts = false; }},
    {"linear", Rule::shape,
     [](Problem& p, auto&, auto&, KernelCard& c) {
       p.kind = ProblemKind::linear;
       c.serves_linear = false;
     }},
    {"interleaved", Rule::source_layout,
     [](Problem& p, auto&, auto&, KernelCard& c) {
       p.interleaved = true;
       c.interleaved = false;
     }},
    {"batch invariance", Rule::batch_invariance, [](auto&, auto&, Policy& o, auto&) { o.batch_invariant = true; }},
    {"policy", Rule::policy, [](auto&, auto&, auto&, KernelCard& c) { c.numerics = Numerics::fast; }},
};

TEST(Rules, TheBaseFits) {
  ReasonTexts texts;
  EXPECT_TRUE(mismatches(int4_problem(), machine("zen4"), {}, kNarrow, texts).empty());
}

TEST(Rules, EachCornerHasItsReasonAlone) {
  ReasonTexts texts;
  std::set<std::string_view> seen;
  for (const Corner& corner : kCorners) {
    Problem problem = int4_problem();
    Machine host = machine("zen4");
    Policy policy;
    KernelCard card = kNarrow;
    corner.change(problem, host, policy, card);
    const auto reasons = mismatches(problem, host, policy, card, texts);
    ASSERT_EQ(reasons.size(), 1U) << corner.name;
    EXPECT_EQ(reasons[0].rule, corner.rule) << corner.name << ": " << reason_text(reasons[0]);
    EXPECT_FALSE(reasons[0].wanted.empty()) << corner.name;
    EXPECT_FALSE(reasons[0].found.empty()) << corner.name;
    EXPECT_EQ(reason_text(reasons[0]).find('\n'), std::string::npos) << corner.name;
    seen.insert(corner.rule.name);
  }
  // All that a card of Moracle's own tables can break, but for the one that comes with a second.
  for (const Rule rule :
       {Rule::device, Rule::quant_scheme, Rule::activation, Rule::shape, Rule::bias, Rule::zero_points, Rule::act_order,
        Rule::policy, Rule::batch_invariance, Rule::source_layout})
    EXPECT_TRUE(seen.contains(rule.name)) << rule.name;
}

TEST(Rules, AnUngatedFunctionIsRefusedTwice) {
  ReasonTexts texts;
  Problem problem = int4_problem();
  problem.activation.fn = ActivationFn::relu2_no_mul;
  const auto reasons = mismatches(problem, machine("zen4"), {}, kNarrow, texts);
  ASSERT_EQ(reasons.size(), 2U);
  EXPECT_EQ(reasons[0].rule, Rule::no_act_and_mul);
  EXPECT_EQ(reasons[1].rule, Rule::activation);
}

// Every pair of corners that change different things reports both, in check order.
TEST(Rules, AllMismatchesAreCollectedInCheckOrder) {
  ReasonTexts texts;
  Problem problem = int4_problem();
  problem.bias = problem.act_order = problem.interleaved = true;
  problem.activation.fn = ActivationFn::gelu;
  problem.scheme.weight.granularity = Granularity::group(48);
  problem.intermediate = 100;
  KernelCard card = kNarrow;
  card.numerics = Numerics::fast;
  card.intermediate_multiple = 64;
  card.interleaved = false;
  std::vector<Rule> rules;
  for (const Reason& reason : mismatches(problem, machine("generic-x86-64"), {.batch_invariant = true}, card, texts))
    rules.push_back(reason.rule);
  EXPECT_EQ(rules, (std::vector<Rule>{Rule::device, Rule::activation, Rule::quant_scheme, Rule::act_order, Rule::bias,
                                      Rule::shape, Rule::source_layout, Rule::batch_invariance, Rule::policy}));
}

TEST(Rules, ReasonsSayWhatIsWantedInTheFieldsTerms) {
  ReasonTexts texts;
  const auto only = [&texts](const Problem& problem, const Machine& host, const KernelCard& card) {
    return reason_text(mismatches(problem, host, {}, card, texts).at(0));
  };
  EXPECT_EQ(only(int4_problem(), machine("zen3"), test::kWide),
            "device: wanted cpu with avx2+avx512+avx512_bf16, found cpu x86_64 with avx2");
  KernelCard card = kNarrow;
  card.devices = kHopper;
  EXPECT_EQ(only(int4_problem(), machine("b200"), card), "device: wanted cuda of capability 9.0, found cuda sm_100");
  Problem problem = int4_problem();
  problem.scheme.weight.granularity = Granularity::group(48);
  EXPECT_EQ(only(problem, machine("zen4"), kNarrow),
            "quant_scheme: wanted int4 g32/64/128 sym or asym; int4 channel, found int4 g48 sym, 16-bit activations");
}

TEST(Rules, WhatConcernsExpertsIsNotAskedOfALinear) {
  ReasonTexts texts;
  Problem problem = int4_problem();
  problem.kind = ProblemKind::linear;
  problem.activation.fn = ActivationFn::relu2_no_mul;
  problem.top_k = 1000;
  EXPECT_TRUE(mismatches(problem, machine("zen4"), {}, kNarrow, texts).empty());
}

TEST(Rules, SchemeCornersThatFit) {
  ReasonTexts texts;
  Problem problem = int4_problem();
  for (const ScaleType scale : {ScaleType::f32, ScaleType::f16, ScaleType::bf16}) {
    problem.scheme.weight.scale = scale;
    EXPECT_TRUE(mismatches(problem, machine("zen4"), {}, kNarrow, texts).empty());
  }
  problem.scheme.weight.symmetric = false;
  problem.zero_points = true;
  EXPECT_TRUE(mismatches(problem, machine("zen4"), {}, kNarrow, texts).empty());

  // A pair of keys, and widths in the rule itself.
  const QuantKey token{
      .element = Element::e4m3, .scale = ScaleType::f32, .granularity = Granularity::token(), .dynamic = true};
  const std::array rules{SchemeRule{.element = Element::e4m3,
                                    .scale = ScaleType::f32,
                                    .granularity = Granularity::Kind::block,
                                    .activation = true,
                                    .activation_key = token,
                                    .rows = 128,
                                    .cols = 128}};
  KernelCard card = kNarrow;
  card.schemes = rules;
  Problem fp8 = int4_problem();
  fp8.scheme.weight = {.element = Element::e4m3, .scale = ScaleType::f32, .granularity = Granularity::block(128, 128)};
  EXPECT_EQ(mismatches(fp8, machine("zen4"), {}, card, texts).size(), 1U);  // 16-bit activations
  fp8.scheme.activation = token;
  EXPECT_TRUE(mismatches(fp8, machine("zen4"), {}, card, texts).empty());
  fp8.scheme.weight.granularity = Granularity::block(64, 128);
  EXPECT_EQ(mismatches(fp8, machine("zen4"), {}, card, texts).size(), 1U);
}

TEST(Rules, DeviceRulesAreAlternatives) {
  ReasonTexts texts;
  const std::array rules{DeviceRule{.device = DeviceKind::cuda, .min_capability = 75},
                         DeviceRule{.device = DeviceKind::rocm, .arch = "gfx942"}};
  KernelCard card = kNarrow;
  card.devices = rules;
  for (const char* name : {"t4", "h200", "mi300x"})
    EXPECT_TRUE(mismatches(int4_problem(), machine(name), {}, card, texts).empty()) << name;
  for (const char* name : {"mi355x", "pvc", "zen4"})
    EXPECT_EQ(mismatches(int4_problem(), machine(name), {}, card, texts).size(), 1U) << name;
}

TEST(Rules, ExtremeNumbersAreOnlyCompared) {
  ReasonTexts texts;
  Problem problem = int4_problem();
  problem.hidden = std::numeric_limits<std::int64_t>::max();
  problem.intermediate = std::numeric_limits<std::int64_t>::min();
  problem.experts = problem.top_k = std::numeric_limits<std::int64_t>::max();
  KernelCard card = kNarrow;
  card.hidden_multiple = 0;
  card.intermediate_multiple = -1;
  EXPECT_EQ(mismatches(problem, machine("zen4"), {}, card, texts).size(), 3U);  // intermediate, experts, top-k
}

}  // namespace
}  // namespace moracle
