// Conditions, refusals, guarded rows, names, verdicts and forced backends.
#include <gtest/gtest.h>

#include <algorithm>

#include "oracle/decide.h"
#include "unit/oracle/test_cards.h"

namespace moracle {
namespace {

Problem question() {
  Problem problem;
  problem.scheme.weight = {Element::int4, ScaleType::f16, Granularity::group(128)};
  problem.experts = 128;
  problem.top_k = 8;
  problem.hidden = 2048;
  problem.intermediate = 768;
  return problem;
}
Machine host() {
  Machine machine;
  machine.arch = "x86_64";
  machine.cpu_features = CpuFeature::avx2 | CpuFeature::avx512 | CpuFeature::avx512_bf16;
  machine.libraries = {"flash"};
  return machine;
}
bool holds_here(const Condition& condition, const Problem& problem = question(), const Policy& policy = {}) {
  return holds(condition, problem, host(), policy);
}

TEST(Conditions, NoneAlwaysHolds) {
  EXPECT_TRUE(holds_here({}));
}

TEST(Conditions, EveryMemberThatIsSetMustHold) {
  Problem problem = question();
  problem.parallel.ep = 4;
  problem.stated_activation.alpha = 1.5F;
  problem.source_group = 100;
  EXPECT_TRUE(holds_here({.devices = {{.device = DeviceKind::cpu}}}));
  EXPECT_FALSE(holds_here({.devices = {{.device = DeviceKind::cuda}}}));
  EXPECT_TRUE(holds_here({.devices = {{.device = DeviceKind::cuda}, {.device = DeviceKind::cpu}}}));
  EXPECT_TRUE(holds_here({.libraries = {"flash"}}));
  EXPECT_FALSE(holds_here({.libraries = {"flash", "other"}}));
  EXPECT_TRUE(holds_here({.ep = true}, problem));
  EXPECT_FALSE(holds_here({.ep = false}, problem));
  EXPECT_TRUE(holds_here({.stated_activation = true, .stated_limit = false, .alpha = 1.5F}, problem));
  EXPECT_FALSE(holds_here({.beta = 1.0F}, problem)) << "not stated";
  EXPECT_TRUE(holds_here({.hidden_off = 100}));
  EXPECT_FALSE(holds_here({.hidden_off = 128}));
  EXPECT_TRUE(holds_here({.group_off = 32}, problem));
  EXPECT_FALSE(holds_here({.min_experts = 129}));
  EXPECT_FALSE(holds_here({.activations = {ActivationFn::relu2}}));
  EXPECT_TRUE(holds_here({.activations = {ActivationFn::relu2, ActivationFn::silu}}));
  EXPECT_FALSE(holds_here({.ep = true, .min_experts = 129}, problem));
}

TEST(Conditions, AFactThatIsNotStatedHasNoValue) {
  Policy policy;
  policy.facts = {{"FAST", "1"}};
  EXPECT_TRUE(holds_here({.facts = {{"FAST", "1"}}}, question(), policy));
  EXPECT_FALSE(holds_here({.facts = {{"FAST", "0"}}}, question(), policy));
  EXPECT_FALSE(holds_here({.facts = {{"OTHER", "1"}}}, question(), policy));
  EXPECT_TRUE(holds_here({.facts = {{"OTHER", "0", false}}}, question(), policy));
}

constexpr std::array kFirst{Refusal{.rule = Rule::shape,
                                    .label = "few",
                                    .wanted = "fewer experts",
                                    .order = CheckOrder::before_all,
                                    .when = {.min_experts = 100}}};
constexpr std::array kLast{Refusal{
    .rule = Rule::bias, .order = CheckOrder::after_all, .when = {}, .unless = Condition{.libraries = {"flash"}}}};

TEST(Refusals, ComeInTheirOrderAndKeepTheirLabel) {
  ReasonTexts texts;
  KernelCard card = test::kWide;
  card.refusals = kFirst;
  Problem problem = question();
  problem.activation.fn = ActivationFn::relu2;
  const auto reasons = mismatches(problem, host(), {}, card, texts);
  ASSERT_GE(reasons.size(), 2U);
  EXPECT_EQ(reasons[0].label, "few");
  EXPECT_EQ(reasons[0].rule, Rule::shape);
  EXPECT_EQ(reasons[0].wanted, "fewer experts");
  EXPECT_EQ(reasons[1].rule, Rule::activation);

  card.refusals = kLast;
  EXPECT_TRUE(mismatches(question(), host(), {}, card, texts).empty());
  Machine bare = host();
  bare.libraries.clear();
  const auto last = mismatches(problem, bare, {}, card, texts);
  ASSERT_EQ(last.size(), 2U);
  EXPECT_EQ(last.back().rule, Rule::bias);
}

constexpr std::array kManyExperts{Condition{.min_experts = 100}};
constexpr std::array kRows{
    TableRow{.card = &test::kNarrow, .why = "first for many", .backend = "NARROW", .when = kManyExperts},
    TableRow{.card = &test::kWide, .why = "wide", .backend = "WIDE"},
    TableRow{.card = &test::kNarrow, .why = "else last", .backend = "NARROW", .unless = kManyExperts},
    TableRow{.card = &test::kReference, .why = "by name", .backend = "SLOW", .on_request = true}};
constexpr std::array kNames{BackendName{"narrow", "NARROW"}, BackendName{"slow", "SLOW"}, BackendName{"any", "WIDE"},
                            BackendName{"any", "NARROW"}, BackendName{"few", "WIDE", Condition{.min_experts = 1000}}};
constexpr std::array kVerdicts{Verdict{.code = "no_bias_here", .when = {.bias = true}}};
constexpr std::array kForced{ForcedRule{.backend = "SLOW", .when = {.facts = {{"SLOW", "1"}}}},
                             ForcedRule{.backend = "WIDE", .when = {.facts = {{"WIDE", "1"}}}, .fallback = true}};
constexpr Table kTable{.name = "t", .rows = kRows, .names = kNames, .verdicts = kVerdicts, .forced = kForced};

std::vector<std::string> walked(const Problem& problem, const Policy& policy) {
  std::vector<std::string> backends;
  const Decision decision = decide(problem, host(), policy, kTable);
  for (const Candidate& candidate : decision.trace) {
    const bool overridden = std::any_of(candidate.reasons.begin(), candidate.reasons.end(),
                                        [](const Reason& reason) { return reason.rule == Rule::override_; });
    if (!overridden) backends.emplace_back(candidate.backend);
  }
  return backends;
}
using Names = std::vector<std::string>;

TEST(Rows, ABackendHasOnePlaceAtATime) {
  EXPECT_EQ(walked(question(), {}), (Names{"NARROW", "WIDE"}));
  Problem few = question();
  few.experts = 8;
  EXPECT_EQ(walked(few, {}), (Names{"WIDE", "NARROW"}));
}

TEST(Rows, NamesReachTheirBackendsInTheirOrder) {
  EXPECT_EQ(walked(question(), {.pinned = "any"}), (Names{"WIDE", "NARROW"}));
  EXPECT_EQ(walked(question(), {.pinned = "slow"}), (Names{"SLOW"}));
  EXPECT_TRUE(decide(question(), host(), {.pinned = "few"}, kTable).pin_without_variant);
  EXPECT_TRUE(decide(question(), host(), {.pinned = "what"}, kTable).pin_unknown);
}

TEST(Rows, AVerdictWalksNothing) {
  Problem problem = question();
  problem.bias = true;
  const Decision decision = decide(problem, host(), {}, kTable);
  EXPECT_EQ(decision.verdict, "no_bias_here");
  EXPECT_TRUE(decision.trace.empty());
  EXPECT_EQ(decision.winner, nullptr);
  EXPECT_FALSE(winner_of(decision, problem).ok());
}

TEST(Rows, TheSurroundingsMayDemandABackend) {
  Policy policy;
  policy.facts = {{"SLOW", "1"}};
  EXPECT_EQ(walked(question(), policy), (Names{"SLOW"}));
  policy.pinned = "narrow";
  EXPECT_EQ(walked(question(), policy), (Names{"NARROW"})) << "a pin counts more";
  policy = {};
  policy.facts = {{"WIDE", "1"}};
  const Decision decision = decide(question(), host(), policy, kTable);
  ASSERT_NE(decision.winner, nullptr);
  EXPECT_EQ(decision.winner->backend, "narrow");
  ASSERT_EQ(decision.warnings.size(), 1U);
  EXPECT_NE(decision.warnings[0].find("the surroundings ask for WIDE"), std::string::npos);
}

TEST(Decisions, WithoutTextsAreTheSame) {
  Policy quiet;
  quiet.explain = false;
  const Decision loud = decide(question(), host(), {}, kTable);
  const Decision silent = decide(question(), host(), quiet, kTable);
  EXPECT_EQ(loud.winner, silent.winner);
  ASSERT_EQ(loud.trace.size(), silent.trace.size());
  for (std::size_t i = 0; i < loud.trace.size(); ++i) {
    ASSERT_EQ(loud.trace[i].reasons.size(), silent.trace[i].reasons.size());
    for (std::size_t j = 0; j < loud.trace[i].reasons.size(); ++j) {
      EXPECT_EQ(loud.trace[i].reasons[j].rule, silent.trace[i].reasons[j].rule);
      EXPECT_TRUE(silent.trace[i].reasons[j].wanted.empty());
    }
  }
}

}  // namespace
}  // namespace moracle
