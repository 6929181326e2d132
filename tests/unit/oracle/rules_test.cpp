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

constexpr std::array kRoutings{Routing::topk_softmax};
constexpr std::array kLogits{Element::f32};
constexpr std::array kBf16{Element::bf16};
constexpr std::array<std::string_view, 1> kLibraries{"flashinfer"};
constexpr std::array<std::string_view, 1> kGptq{"gptq"};
constexpr std::array<std::string_view, 1> kNvlink{"flashinfer_nvlink"};
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
    {"library", Rule::library, [](auto&, auto&, auto&, KernelCard& c) { c.libraries = kLibraries; }},
    {"ungated", Rule::no_act_and_mul,
     [](Problem& p, auto&, auto&, KernelCard& c) {
       static constexpr std::array kAll{ActivationFn::silu, ActivationFn::relu2_no_mul};
       p.activation.fn = ActivationFn::relu2_no_mul;
       c.activations = kAll;
       c.ungated = false;
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
    {"tp", Rule::parallel_config,
     [](Problem& p, auto&, auto&, KernelCard& c) {
       p.parallel.tp = 2;
       c.parallel.tp = false;
     }},
    {"ep and dp", Rule::parallel_config,
     [](Problem& p, auto&, auto&, KernelCard& c) {
       p.parallel = {.tp = 1, .ep = 4, .dp = 2};
       c.parallel.ep = c.parallel.dp = false;
     }},
    {"all2all", Rule::parallel_config,
     [](Problem& p, auto&, auto&, KernelCard& c) {
       p.all2all = "flashinfer_nvlink";
       c.parallel.refused_all2all = kNvlink;
     }},
    {"load balancing", Rule::parallel_config,
     [](Problem& p, auto&, auto&, KernelCard& c) {
       p.load_balancing = true;
       c.parallel.load_balancing = false;
     }},
    {"hash routing", Rule::hash_routing,
     [](Problem& p, auto&, auto&, KernelCard& c) {
       p.routing = Routing::hash;
       c.router.monolithic = true;
     }},
    {"decomposed", Rule::decomposed_required,
     [](Problem& p, auto&, auto&, KernelCard& c) {
       p.decomposed_required = true;
       c.router.monolithic = true;
     }},
    {"routing", Rule::routing,
     [](Problem& p, auto&, auto&, KernelCard& c) {
       p.routing = Routing::sigmoid;
       c.router = {.monolithic = true, .routings = kRoutings};
     }},
    {"router logits", Rule::router_logits_dtype,
     [](auto&, auto&, auto&, KernelCard& c) { c.router = {.monolithic = true, .logits_dtypes = kLogits}; }},
    {"dtype", Rule::dtype,
     [](Problem& p, auto&, auto&, KernelCard& c) {
       p.dtype = Element::f16;
       c.dtypes = kBf16;
     }},
    {"bias", Rule::bias, [](Problem& p, auto&, auto&, auto&) { p.bias = true; }},
    {"hidden", Rule::shape, [](auto&, auto&, auto&, KernelCard& c) { c.hidden_multiple = 4096; }},
    {"no hidden", Rule::shape, [](Problem& p, auto&, auto&, auto&) { p.hidden = 0; }},
    {"negative intermediate", Rule::shape, [](Problem& p, auto&, auto&, auto&) { p.intermediate = -768; }},
    {"intermediate", Rule::shape, [](auto&, auto&, auto&, KernelCard& c) { c.intermediate_multiple = 512; }},
    {"top-k above", Rule::shape, [](Problem& p, auto&, auto&, auto&) { p.top_k = 65; }},
    {"top-k below", Rule::shape, [](Problem& p, auto&, auto&, auto&) { p.top_k = 0; }},
    {"experts", Rule::shape, [](auto&, auto&, auto&, KernelCard& c) { c.max_experts = 127; }},
    {"kind", Rule::shape, [](auto&, auto&, auto&, KernelCard& c) { c.serves_experts = false; }},
    {"linear", Rule::shape,
     [](Problem& p, auto&, auto&, KernelCard& c) {
       p.kind = ProblemKind::linear;
       c.serves_linear = false;
     }},
    {"batched", Rule::activation_format,
     [](Problem& p, auto&, auto&, auto&) { p.activation_format = ActivationFormat::batched; }},
    {"source layout", Rule::source_layout,
     [](Problem& p, auto&, auto&, KernelCard& c) {
       p.source_layout = "awq";
       c.source_layouts = kGptq;
     }},
    {"unknown source layout", Rule::source_layout,
     [](auto&, auto&, auto&, KernelCard& c) { c.source_layouts = kGptq; }},
    {"refused source layout", Rule::source_layout,
     [](Problem& p, auto&, auto&, KernelCard& c) {
       p.source_layout = "gptq";
       c.refused_layouts = kGptq;
     }},
    {"batch invariance", Rule::batch_invariance, [](auto&, auto&, Policy& o, auto&) { o.batch_invariant = true; }},
    {"lora", Rule::lora, [](Problem& p, auto&, auto&, auto&) { p.lora = true; }},
    {"policy", Rule::policy, [](auto&, auto&, auto&, KernelCard& c) { c.numerics = Numerics::fast; }},
};

TEST(Rules, TheBaseFits) {
  ReasonTexts texts;
  EXPECT_TRUE(mismatches(int4_problem(), machine("zen4"), {}, kNarrow, texts).empty());
}

TEST(Rules, EachCornerHasItsReasonAlone) {
  ReasonTexts texts;
  std::set<Rule> seen;
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
    seen.insert(corner.rule);
  }
  // All but the two that need a table.
  for (int rule = 0; rule <= static_cast<int>(Rule::not_built); ++rule) {
    const auto value = static_cast<Rule>(rule);
    if (value != Rule::override_ && value != Rule::not_built) {
      EXPECT_TRUE(seen.contains(value)) << to_string(value);
    }
  }
}

// Every pair of corners that change different things reports both, in check order.
TEST(Rules, AllMismatchesAreCollectedInCheckOrder) {
  ReasonTexts texts;
  Problem problem = int4_problem();
  problem.lora = problem.bias = problem.act_order = true;
  problem.activation.fn = ActivationFn::gelu;
  problem.scheme.weight.granularity = Granularity::group(48);
  problem.intermediate = 100;
  problem.activation_format = ActivationFormat::batched;
  KernelCard card = kNarrow;
  card.numerics = Numerics::fast;
  card.intermediate_multiple = 64;
  card.libraries = kLibraries;
  std::vector<Rule> rules;
  for (const Reason& reason : mismatches(problem, machine("generic-x86-64"), {.batch_invariant = true}, card, texts))
    rules.push_back(reason.rule);
  EXPECT_EQ(rules, (std::vector<Rule>{Rule::device, Rule::library, Rule::activation, Rule::quant_scheme,
                                      Rule::act_order, Rule::bias, Rule::shape, Rule::activation_format,
                                      Rule::batch_invariance, Rule::lora, Rule::policy}));
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
  problem.routing = Routing::hash;
  problem.top_k = 1000;
  problem.parallel.ep = 2;
  KernelCard card = kNarrow;
  card.router.monolithic = true;
  card.parallel.ep = false;
  EXPECT_TRUE(mismatches(problem, machine("zen4"), {}, card, texts).empty());
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
  EXPECT_EQ(mismatches(problem, machine("zen4"), {}, card, texts).size(), 2U);  // intermediate, top-k
}

}  // namespace
}  // namespace moracle
