// Every rule of a class is produced by a corner, and by that corner alone.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "unit/compat/test_classes.h"

namespace moracle::vllm {
namespace {

using test::kNarrow;

constexpr std::array kRoutings{Routing::topk_softmax};
constexpr std::array kLogits{Element::f32};
constexpr std::array<std::string_view, 1> kLibraries{"flashinfer"};
constexpr std::array<std::string_view, 1> kNvlinkOnly{"flashinfer_nvlink"};
constexpr std::array kUngatedToo{Fn::silu, Fn::relu2_no_mul};
constexpr std::array kNarrowCodes{kNarrowInt};
constexpr std::array kAnyActivations{any(kInt4Static32)};

struct Corner {
  const char* name;
  Rule rule;
  std::function<void(Question&, Machine&, Policy&, ExpertsClass&)> change;
};

const Corner kCorners[] = {
    {"cpu without the feature", Rule::device, [](auto&, Machine& m, auto&, auto&) { m.cpu_features = 0; }},
    {"gpu", Rule::device, [](auto&, Machine& m, auto&, auto&) { m.device = DeviceKind::cuda; }},
    {"library", rules::library, [](auto&, auto&, auto&, ExpertsClass& c) { c.libraries = kLibraries; }},
    {"ungated", Rule::no_act_and_mul,
     [](Question& q, auto&, auto&, ExpertsClass& c) {
       q.layer.activation.fn = Fn::relu2_no_mul;
       c.activations = kUngatedToo;
     }},
    {"activation", Rule::activation, [](Question& q, auto&, auto&, auto&) { q.layer.activation.fn = Fn::situ; }},
    {"key", Rule::quant_scheme, [](Question& q, auto&, auto&, auto&) { q.layer.scheme.weight = kInt8Static; }},
    {"activation key", Rule::quant_scheme,
     [](Question& q, auto&, auto&, auto&) { q.layer.scheme.activation = kFp8DynamicTokenSym; }},
    {"narrow codes", Rule::quant_scheme, [](Question& q, auto&, auto&, auto&) { q.code_bits = 3; }},
    {"narrow codes alone", Rule::quant_scheme,
     [](Question& q, auto&, auto&, ExpertsClass& c) {
       q.layer.scheme.weight = kInt8Static;
       c.schemes = kNarrowCodes;
     }},
    {"ep and dp", rules::parallel_config,
     [](Question& q, auto&, auto&, ExpertsClass& c) {
       q.ep = 4;
       q.dp = 2;
       c.parallel.ep = c.parallel.dp = false;
     }},
    {"all2all refused", rules::parallel_config,
     [](Question& q, auto&, auto&, ExpertsClass& c) {
       q.all2all = "flashinfer_nvlink";
       c.parallel.refused_all2all = kNvlinkOnly;
     }},
    {"all2all among others", rules::parallel_config,
     [](Question& q, auto&, auto&, ExpertsClass& c) {
       q.all2all = "deepep";
       c.parallel.accepted_all2all = kNvlinkOnly;
     }},
    {"load balancing", rules::parallel_config,
     [](Question& q, auto&, auto&, ExpertsClass& c) {
       q.load_balancing = true;
       c.parallel.load_balancing = false;
     }},
    {"hash routing", rules::hash_routing,
     [](Question& q, auto&, auto&, ExpertsClass& c) {
       q.hash_routing = true;
       c.router.monolithic = true;
     }},
    {"decomposed", rules::decomposed_required,
     [](Question& q, auto&, auto&, ExpertsClass& c) {
       q.decomposed_required = true;
       c.router.monolithic = true;
     }},
    {"routing", rules::routing,
     [](Question& q, auto&, auto&, ExpertsClass& c) {
       q.routing = Routing::sigmoid;
       c.router = {.monolithic = true, .routings = kRoutings};
     }},
    {"router logits", rules::router_logits_dtype,
     [](auto&, auto&, auto&, ExpertsClass& c) { c.router = {.monolithic = true, .logits_dtypes = kLogits}; }},
    {"an empty slice", Rule::shape, [](Question& q, auto&, auto&, auto&) { q.layer.intermediate = 0; }},
    {"batched", rules::activation_format,
     [](Question& q, auto&, auto&, auto&) { q.activation_format = ActivationFormat::batched; }},
    {"batch invariance", Rule::batch_invariance, [](auto&, auto&, Policy& o, auto&) { o.batch_invariant = true; }},
    {"lora", rules::lora, [](Question& q, auto&, auto&, auto&) { q.lora = true; }},
};

TEST(VllmClasses, EachCornerHasItsReasonAlone) {
  ReasonTexts texts;
  EXPECT_TRUE(mismatches(test::question(), test::machine(), {}, kNarrow, texts).empty());
  std::set<std::string_view> seen;
  for (const Corner& corner : kCorners) {
    Question question = test::question();
    Machine machine = test::machine();
    Policy policy;
    ExpertsClass experts = kNarrow;
    corner.change(question, machine, policy, experts);
    const auto reasons = mismatches(question, machine, policy, experts, texts);
    ASSERT_EQ(reasons.size(), 1U) << corner.name;
    EXPECT_EQ(reasons[0].rule, corner.rule) << corner.name << ": " << reason_text(reasons[0]);
    EXPECT_FALSE(reasons[0].wanted.empty()) << corner.name;
    EXPECT_FALSE(reasons[0].found.empty()) << corner.name;
    seen.insert(corner.rule.name);
  }
  EXPECT_EQ(seen.size(), 14U);
}

TEST(VllmClasses, KeysMayLeaveTheActivationsOpen) {
  ReasonTexts texts;
  ExpertsClass experts = kNarrow;
  experts.schemes = kAnyActivations;
  Question question = test::question();
  for (const auto& key : {std::optional<QuantKey>(), std::optional(kFp8DynamicTokenSym)}) {
    question.layer.scheme.activation = key;
    EXPECT_TRUE(mismatches(question, test::machine(), {}, experts, texts).empty());
  }
  question.layer.scheme.weight = kInt8Static;
  const auto reasons = mismatches(question, test::machine(), {}, experts, texts);
  ASSERT_EQ(reasons.size(), 1U);
  EXPECT_NE(reasons[0].wanted.find("int4 g32 sym with any activations"), std::string_view::npos) << reasons[0].wanted;
}

// The trace shows the first reason: the order is vLLM's.
TEST(VllmClasses, AllMismatchesAreCollectedInCheckOrder) {
  ReasonTexts texts;
  Question question = test::question();
  question.lora = question.decomposed_required = question.hash_routing = true;
  question.layer.activation.fn = Fn::gelu_no_mul;
  question.layer.scheme.weight = kInt8Static;
  question.routing = Routing::sigmoid;
  question.ep = 2;
  question.layer.intermediate = 0;
  question.activation_format = ActivationFormat::batched;
  ExpertsClass experts = kNarrow;
  experts.libraries = kLibraries;
  experts.parallel.ep = false;
  experts.router = {.monolithic = true, .routings = kRoutings, .logits_dtypes = kLogits};
  Machine machine = test::machine();
  machine.cpu_features = 0;
  std::vector<Rule> found;
  for (const Reason& reason : mismatches(question, machine, {.batch_invariant = true}, experts, texts))
    found.push_back(reason.rule);
  EXPECT_EQ(found, (std::vector<Rule>{Rule::device, rules::library, Rule::no_act_and_mul, Rule::activation,
                                      Rule::quant_scheme, rules::parallel_config, rules::hash_routing,
                                      rules::decomposed_required, rules::routing, rules::router_logits_dtype,
                                      Rule::shape, rules::activation_format, Rule::batch_invariance, rules::lora}));
}

// Beside the names of Moracle's own rules, which tests/unit/oracle/explain_test.cpp holds.
TEST(VllmClasses, RulesAreSpelledAsTheContractSays) {
  std::set<std::string_view> spelled;
  for (const Rule rule :
       {rules::library, rules::parallel_config, rules::activation_format, rules::routing, rules::hash_routing,
        rules::decomposed_required, rules::router_logits_dtype, rules::dtype, rules::lora})
    spelled.insert(rule.name);
  EXPECT_EQ(spelled,
            (std::set<std::string_view>{"library", "parallel_config", "activation_format", "routing", "hash_routing",
                                        "decomposed_required", "router_logits_dtype", "dtype", "lora"}));
  EXPECT_EQ(kDecisionOnly.name, "decision_only");
}

}  // namespace
}  // namespace moracle::vllm
