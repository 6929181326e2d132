// Conditions, refusals, guarded rows, names, verdicts and forced backends.
#include <gtest/gtest.h>

#include <algorithm>

#include "compat/vllm/tables/tables.h"
#include "kernels/kernel.h"
#include "unit/compat/test_classes.h"

namespace moracle::vllm {
namespace {

using test::question;

bool holds_here(const Condition& condition, const Question& asked = question(), const Policy& policy = {}) {
  return holds(condition, asked, test::machine(), policy);
}

TEST(Conditions, NoneAlwaysHolds) {
  EXPECT_TRUE(holds_here({}));
}

TEST(Conditions, EveryMemberThatIsSetMustHold) {
  Question asked = question();
  asked.ep = 4;
  asked.stated_activation.alpha = 1.5F;
  asked.source_group = 100;
  EXPECT_TRUE(holds_here({.devices = {{.device = DeviceKind::cpu}}}));
  EXPECT_FALSE(holds_here({.devices = {{.device = DeviceKind::cuda}}}));
  EXPECT_TRUE(holds_here({.devices = {{.device = DeviceKind::cuda}, {.device = DeviceKind::cpu}}}));
  EXPECT_TRUE(holds_here({.libraries = {"flash"}}));
  EXPECT_FALSE(holds_here({.libraries = {"flash", "other"}}));
  EXPECT_TRUE(holds_here({.ep = true}, asked));
  EXPECT_FALSE(holds_here({.ep = false}, asked));
  EXPECT_TRUE(holds_here({.stated_activation = true, .stated_limit = false, .alpha = 1.5F}, asked));
  EXPECT_FALSE(holds_here({.beta = 1.0F}, asked)) << "not stated";
  EXPECT_TRUE(holds_here({.hidden_off = 100}));
  EXPECT_FALSE(holds_here({.hidden_off = 128}));
  EXPECT_TRUE(holds_here({.group_off = 32}, asked));
  EXPECT_FALSE(holds_here({.min_experts = 129}));
  EXPECT_FALSE(holds_here({.activations = {Fn::relu2}}));
  EXPECT_TRUE(holds_here({.activations = {Fn::relu2, Fn::silu}}));
  EXPECT_FALSE(holds_here({.ep = true, .min_experts = 129}, asked));
}

TEST(Conditions, AFactThatNobodyStatesHasNoValue) {
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
  ExpertsClass experts = test::kWide;
  experts.refusals = kFirst;
  Question asked = question();
  asked.layer.activation.fn = Fn::relu2;
  const auto reasons = mismatches(asked, test::machine(), {}, experts, texts);
  ASSERT_GE(reasons.size(), 2U);
  EXPECT_EQ(reasons[0].label, "few");
  EXPECT_EQ(reasons[0].rule, Rule::shape);
  EXPECT_EQ(reasons[0].wanted, "fewer experts");
  EXPECT_EQ(reasons[1].rule, Rule::activation);

  experts.refusals = kLast;
  EXPECT_TRUE(mismatches(question(), test::machine(), {}, experts, texts).empty());
  Machine bare = test::machine();
  bare.libraries.clear();
  const auto last = mismatches(asked, bare, {}, experts, texts);
  ASSERT_EQ(last.size(), 2U);
  EXPECT_EQ(last.back().rule, Rule::bias);
}

constexpr std::array kManyExperts{Condition{.min_experts = 100}};
constexpr std::array kRows{
    Row{.experts = &test::kNarrow, .why = "first for many", .backend = "NARROW", .when = kManyExperts},
    Row{.experts = &test::kWide, .why = "wide", .backend = "WIDE"},
    Row{.experts = &test::kNarrow, .why = "else last", .backend = "NARROW", .unless = kManyExperts},
    Row{.experts = &test::kSlow, .why = "by name", .backend = "SLOW", .on_request = true}};
constexpr std::array kNames{BackendName{"narrow", "NARROW"}, BackendName{"slow", "SLOW"}, BackendName{"any", "WIDE"},
                            BackendName{"any", "NARROW"}, BackendName{"few", "WIDE", Condition{.min_experts = 1000}}};
constexpr std::array kVerdicts{Verdict{.code = "no_bias_here", .when = {.bias = true}}};
constexpr std::array kForced{ForcedRule{.backend = "SLOW", .when = {.facts = {{"SLOW", "1"}}}},
                             ForcedRule{.backend = "WIDE", .when = {.facts = {{"WIDE", "1"}}}, .fallback = true}};
constexpr Table kTable{.name = "t", .rows = kRows, .names = kNames, .verdicts = kVerdicts, .forced = kForced};

using Names = std::vector<std::string>;
Names walked(const Question& asked, const Policy& policy) {
  Names backends;
  for (const Candidate& candidate : decide(asked, test::machine(), policy, kTable).trace) {
    if (candidate.asked) backends.emplace_back(candidate.row->backend);
  }
  return backends;
}

TEST(Rows, ABackendHasOnePlaceAtATime) {
  EXPECT_EQ(walked(question(), {}), (Names{"NARROW", "WIDE"}));
  Question few = question();
  few.layer.experts = 8;
  EXPECT_EQ(walked(few, {}), (Names{"WIDE", "NARROW"}));
}

TEST(Rows, NamesReachTheirBackendsInTheirOrder) {
  EXPECT_EQ(walked(question(), {.pinned = "any"}), (Names{"WIDE", "NARROW"}));
  EXPECT_EQ(walked(question(), {.pinned = "slow"}), (Names{"SLOW"}));
  EXPECT_TRUE(decide(question(), test::machine(), {.pinned = "few"}, kTable).pin_without_variant);
  EXPECT_TRUE(decide(question(), test::machine(), {.pinned = "what"}, kTable).pin_unknown);
}

TEST(Rows, AVerdictWalksNothing) {
  Question asked = question();
  asked.layer.bias = true;
  const Decision decision = decide(asked, test::machine(), {}, kTable);
  EXPECT_EQ(decision.verdict, "no_bias_here");
  EXPECT_TRUE(decision.trace.empty());
  EXPECT_FALSE(decision.chosen.has_value());
  EXPECT_TRUE(explained(decision).if_built.empty());
}

TEST(Rows, TheSurroundingsMayDemandABackend) {
  Policy policy;
  policy.facts = {{"SLOW", "1"}};
  EXPECT_EQ(walked(question(), policy), (Names{"SLOW"}));
  policy.pinned = "narrow";
  EXPECT_EQ(walked(question(), policy), (Names{"NARROW"})) << "a pin counts more";
  policy = {};
  policy.facts = {{"WIDE", "1"}};
  const Decision decision = decide(question(), test::machine(), policy, kTable);
  EXPECT_EQ(decision.backend(), "NARROW");
  ASSERT_EQ(decision.warnings.size(), 1U);
  EXPECT_NE(decision.warnings[0].find("the surroundings ask for WIDE"), std::string::npos);
}

TEST(Decisions, WithoutTextsAreTheSame) {
  const Decision loud = decide(question(), test::machine(), {}, kTable);
  const Decision silent = decide(question(), test::machine(), {.explain = false}, kTable);
  EXPECT_EQ(loud.chosen, silent.chosen);
  ASSERT_EQ(loud.trace.size(), silent.trace.size());
  for (std::size_t i = 0; i < loud.trace.size(); ++i) {
    ASSERT_EQ(loud.trace[i].reasons.size(), silent.trace[i].reasons.size());
    for (std::size_t j = 0; j < loud.trace[i].reasons.size(); ++j) {
      EXPECT_EQ(loud.trace[i].reasons[j].rule, silent.trace[i].reasons[j].rule);
      EXPECT_TRUE(silent.trace[i].reasons[j].wanted.empty());
    }
  }
}

// What `explain` shows: no candidate runs here, whoever was asked for is marked, and emulation says what it is.
TEST(Decisions, AreShownAsKernelsOfAnotherBuild) {
  const Decision decision = decide(question(), test::machine(), {.pinned = "slow"}, kTable);
  const moracle::Decision shown = explained(decision);
  EXPECT_EQ(shown.winner, nullptr);
  EXPECT_EQ(shown.if_built, "slow");
  ASSERT_EQ(shown.warnings.size(), 1U);
  EXPECT_NE(shown.warnings[0].find("SLOW emulates this scheme"), std::string::npos);
  ASSERT_EQ(shown.trace.size(), 3U);
  ASSERT_EQ(shown.best_candidate, 0U);
  EXPECT_EQ(shown.trace[0].id, "vllm.Slow");
  EXPECT_EQ(shown.trace[0].kind, kDecisionOnly);
  EXPECT_EQ(shown.trace[0].reasons.back().rule, Rule::not_built);
  EXPECT_EQ(shown.trace[1].reasons.front().rule, Rule::override_);
  EXPECT_EQ(shown.trace[1].reasons.front().wanted, "slow");
}

// A class whose kernel's layout is public points at that layout's card, which packs here.
TEST(VllmTables, ClassesPointAtTheCardsOfTheirLayouts) {
  std::size_t pointing = 0;
  for (const Table* table : all_tables()) {
    for (const Row& row : table->rows) {
      EXPECT_TRUE(row.experts->id.starts_with("vllm.")) << row.experts->id;
      for (const KernelCard* card : row.experts->layouts) {
        ++pointing;
        EXPECT_EQ(card->kind, CardKind::external) << card->id;
        EXPECT_TRUE(card->serves_experts) << card->id;
        EXPECT_NE(find_implementation(card->id), nullptr) << card->id;
      }
    }
  }
  EXPECT_GT(pointing, 0U);
}

}  // namespace
}  // namespace moracle::vllm
