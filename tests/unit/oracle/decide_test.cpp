#include "oracle/decide.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "unit/oracle/test_cards.h"

namespace moracle {
namespace {

using test::backend_of;
using test::int4_problem;
using test::kNarrow;
using test::kQuick;
using test::kReference;
using test::kTable;
using test::kWide;
using test::machine;

Problem channel_problem() {
  Problem problem = int4_problem();
  problem.scheme.weight.granularity = Granularity::channel();
  return problem;
}
Problem int8_problem() {
  Problem problem = int4_problem();
  problem.scheme.weight.element = Element::int8;
  return problem;
}
Problem biased_problem() {
  Problem problem = int4_problem();
  problem.bias = true;
  return problem;
}

bool has_rule(const Candidate& candidate, Rule rule) {
  return std::any_of(candidate.reasons.begin(), candidate.reasons.end(),
                     [rule](const Reason& reason) { return reason.rule == rule; });
}

TEST(Decide, MatrixOfSchemeMachineAndPolicy) {
  const Policy exact{};
  const Policy fast{.numerics = Numerics::fast};
  const Policy invariant{.batch_invariant = true};
  struct Case {
    Problem problem;
    const char* machine;
    const Policy* policy;
    const char* winner;
  };
  const Case cases[] = {
      {int4_problem(), "zen4", &exact, "wide"},
      {int4_problem(), "zen4", &fast, "wide"},
      {int4_problem(), "zen4", &invariant, "ref"},
      {int4_problem(), "sapphire-rapids", &exact, "wide"},
      {int4_problem(), "icelake-server", &exact, "narrow"},
      {int4_problem(), "icelake-server", &fast, "quick"},
      {int4_problem(), "zen3", &exact, "narrow"},
      {int4_problem(), "zen3", &fast, "quick"},
      {int4_problem(), "generic-x86-64", &exact, "ref"},
      {int4_problem(), "h200", &exact, "ref"},
      {channel_problem(), "zen4", &exact, "wide"},
      {channel_problem(), "zen3", &fast, "quick"},
      {biased_problem(), "zen4", &fast, "ref"},
      {int8_problem(), "zen4", &exact, "none"},
      {int8_problem(), "generic-x86-64", &fast, "none"},
  };
  for (const Case& each : cases) {
    const Decision decision = decide(each.problem, machine(each.machine), *each.policy, kTable);
    EXPECT_EQ(backend_of(decision.winner), each.winner)
        << each.machine << ' ' << to_string(each.policy->numerics) << ' ' << to_string(each.problem.scheme);
    EXPECT_EQ(decision.trace.size(), kTable.rows.size());
    EXPECT_EQ(decision.machine_fingerprint, machine(each.machine).fingerprint());
    for (const Candidate& candidate : decision.trace) EXPECT_EQ(candidate.supported, candidate.reasons.empty());
  }
}

TEST(Decide, IsPure) {
  const Machine host = machine("icelake-server");
  const Policy policy{.numerics = Numerics::fast, .preferred = "wide"};
  const Decision first = decide(biased_problem(), host, policy, kTable);
  const Decision second = decide(biased_problem(), host, policy, kTable);
  EXPECT_EQ(first.winner, second.winner);
  EXPECT_EQ(first.warnings, second.warnings);
  EXPECT_EQ(trace_json(first), trace_json(second));
}

TEST(Decide, ReferenceIsNeverSilent) {
  const Decision alone = decide(int4_problem(), machine("generic-x86-64"), {}, kTable);
  ASSERT_EQ(backend_of(alone.winner), "ref");
  ASSERT_EQ(alone.warnings.size(), 1U);
  EXPECT_NE(alone.warnings[0].find("reference"), std::string::npos);
  EXPECT_TRUE(decide(int4_problem(), machine("zen4"), {.pinned = "ref"}, kTable).warnings.empty());
  EXPECT_TRUE(decide(int4_problem(), machine("zen4"), {.preferred = "ref"}, kTable).warnings.empty());
  EXPECT_TRUE(decide(int4_problem(), machine("zen4"), {}, kTable).warnings.empty());
}

TEST(Decide, ReferenceIsLastWhereverItsRowIs) {
  const std::array rows{TableRow{&kReference, ""}, TableRow{&kNarrow, ""}};
  EXPECT_EQ(decide(int4_problem(), machine("zen4"), {}, {.name = "t", .rows = rows}).winner, &kNarrow);
}

TEST(Decide, PinnedServesOrNobodyDoes) {
  const Decision served = decide(int4_problem(), machine("zen4"), {.pinned = "narrow"}, kTable);
  EXPECT_EQ(served.winner, &kNarrow);
  EXPECT_TRUE(served.warnings.empty());
  for (const Candidate& candidate : served.trace) {
    if (candidate.card == &kNarrow) continue;
    ASSERT_FALSE(candidate.reasons.empty());
    EXPECT_EQ(candidate.reasons.back().rule, Rule::override_);
    EXPECT_EQ(candidate.reasons.back().wanted, "narrow");
    EXPECT_EQ(candidate.reasons.back().found, candidate.card->backend);
  }

  const Decision refused = decide(int4_problem(), machine("zen3"), {.pinned = "wide"}, kTable);
  EXPECT_EQ(refused.winner, nullptr);
  EXPECT_TRUE(has_rule(refused.trace[0], Rule::device));
  EXPECT_FALSE(has_rule(refused.trace[0], Rule::override_));
  const auto winner = winner_of(refused, int4_problem());
  ASSERT_FALSE(winner.ok());
  EXPECT_EQ(winner.error().code, "oracle.pinned");
  EXPECT_EQ(winner.error().found, "backend wide cannot serve this layer here: needs avx512, avx512_bf16");
  EXPECT_EQ(winner.error().advice, "usable here: narrow, ref");

  // A fast kernel under the exact policy needs both to be said.
  EXPECT_EQ(decide(int4_problem(), machine("zen4"), {.pinned = "quick"}, kTable).winner, nullptr);
  EXPECT_EQ(decide(int4_problem(), machine("zen4"), {.numerics = Numerics::fast, .pinned = "quick"}, kTable).winner,
            &kQuick);
}

TEST(Decide, UnknownPinnedNameListsTheNames) {
  const Decision decision = decide(int4_problem(), machine("zen4"), {.pinned = "marlin"}, kTable);
  EXPECT_EQ(decision.winner, nullptr);
  EXPECT_EQ(decision.best_if_built, nullptr);
  for (const Candidate& candidate : decision.trace) EXPECT_TRUE(has_rule(candidate, Rule::override_));
  const auto winner = winner_of(decision, int4_problem());
  ASSERT_FALSE(winner.ok());
  EXPECT_EQ(winner.error().code, "oracle.pinned");
  EXPECT_EQ(winner.error().found, "no kernel for this layer is called 'marlin'");
  EXPECT_EQ(winner.error().advice, "usable here: wide, narrow, ref");
}

TEST(Decide, PreferredFallsBackWithOneWarning) {
  const Decision served = decide(int4_problem(), machine("zen4"), {.preferred = "narrow"}, kTable);
  EXPECT_EQ(served.winner, &kNarrow);
  EXPECT_TRUE(served.warnings.empty());

  const Decision fell = decide(int4_problem(), machine("zen3"), {.preferred = "wide"}, kTable);
  EXPECT_EQ(fell.winner, &kNarrow);
  ASSERT_EQ(fell.warnings.size(), 1U);
  EXPECT_EQ(fell.warnings[0],
            "preferred backend wide cannot serve this layer (needs avx512, avx512_bf16); using narrow");

  const Decision unknown = decide(int4_problem(), machine("zen4"), {.preferred = "marlin"}, kTable);
  EXPECT_EQ(unknown.winner, &kWide);
  ASSERT_EQ(unknown.warnings.size(), 1U);
  EXPECT_NE(unknown.warnings[0].find("not known here (known: wide, quick, narrow, ref)"), std::string::npos);

  const Decision nobody = decide(int8_problem(), machine("zen4"), {.preferred = "wide"}, kTable);
  EXPECT_EQ(nobody.winner, nullptr);
  EXPECT_EQ(nobody.warnings.size(), 1U);
}

TEST(Decide, CardsOfOneBackendNameAreAllMeant) {
  KernelCard other = kNarrow;
  other.id = "t.narrow.channel";
  const std::array schemes{test::kIntSchemes[1]};
  KernelCard group_only = kNarrow;
  const std::array group_schemes{test::kIntSchemes[0]};
  group_only.schemes = group_schemes;
  other.schemes = schemes;
  const std::array rows{TableRow{&group_only, ""}, TableRow{&other, ""}};
  const Table table{.name = "t", .rows = rows};
  EXPECT_EQ(decide(channel_problem(), machine("zen4"), {.pinned = "narrow"}, table).winner, &other);
  EXPECT_EQ(decide(int4_problem(), machine("zen4"), {.pinned = "narrow"}, table).winner, &group_only);
  EXPECT_EQ(backend_names(table), std::vector<std::string_view>{"narrow"});
}

TEST(Decide, NotBuiltIsAReasonAndTheAnswerToWhatIf) {
  const Table table{.name = "t", .rows = test::kDefaultRows, .missing = [](std::string_view id) {
                      return std::string_view(id == "t.wide" ? "none" : "");
                    }};
  const Decision decision = decide(int4_problem(), machine("zen4"), {}, table);
  EXPECT_EQ(decision.winner, &kNarrow);
  EXPECT_EQ(decision.best_if_built, &kWide);
  ASSERT_EQ(decision.trace[0].reasons.size(), 1U);
  EXPECT_EQ(decision.trace[0].reasons[0].rule, Rule::not_built);
  // Where the device is not there either, being built would not help.
  EXPECT_EQ(decide(int4_problem(), machine("zen3"), {}, table).best_if_built, &kNarrow);
  EXPECT_EQ(decide(int4_problem(), machine("zen4"), {.pinned = "wide"}, table).winner, nullptr);
}

TEST(Decide, ForeignCardsNeverWin) {
  const std::array cuda{DeviceRule{.device = DeviceKind::cuda, .min_capability = 75}};
  KernelCard external = kNarrow;
  external.id = "f.marlin";
  external.backend = "marlin";
  external.kind = CardKind::external;
  external.devices = cuda;
  KernelCard closed = external;
  closed.id = "f.humming";
  closed.backend = "humming";
  const std::array rows{TableRow{&closed, ""}, TableRow{&external, ""}, TableRow{&kReference, ""}};
  const Table table{.name = "t", .rows = rows, .missing = [](std::string_view) { return std::string_view(); }};

  const Decision theirs = decide(int4_problem(), machine("h200"), {}, table);
  EXPECT_EQ(theirs.winner, &kReference);
  EXPECT_EQ(theirs.best_if_built, &closed);
  for (const std::size_t i : {0U, 1U}) {
    ASSERT_EQ(theirs.trace[i].reasons.size(), 1U);
    EXPECT_EQ(theirs.trace[i].reasons[0].rule, Rule::not_built);
  }
  EXPECT_EQ(decide(int4_problem(), machine("h200"), {.pinned = "marlin"}, table).winner, nullptr);

  const Decision ours = decide(int4_problem(), machine("zen4"), {}, table);
  EXPECT_EQ(ours.best_if_built, &kReference);
  EXPECT_EQ(ours.trace[0].reasons[0].rule, Rule::device);
}

TEST(Decide, AnEmptyTableIsADecision) {
  const Decision decision = decide(int4_problem(), machine("zen4"), {}, {.name = "empty", .rows = {}});
  EXPECT_EQ(decision.winner, nullptr);
  EXPECT_EQ(winner_of(decision, int4_problem()).error().code, "oracle.no_backend");
}

TEST(Decide, ErrorSaysWhatEachBackendLacks) {
  const Decision decision = decide(int8_problem(), machine("zen3"), {}, kTable);
  const auto winner = winner_of(decision, int8_problem());
  ASSERT_FALSE(winner.ok());
  EXPECT_EQ(winner.error().details,
            (std::vector<std::string>{"wide needs avx512, avx512_bf16; takes int4 g32/64/128 sym or asym; int4 channel",
                                      "quick takes int4 g32/64/128 sym or asym; int4 channel; needs --policy fast",
                                      "narrow takes int4 g32/64/128 sym or asym; int4 channel",
                                      "ref takes int4 g32/64/128 sym or asym; int4 channel"}));
  EXPECT_NE(winner.error().message().find("[128 experts, top-8, 2048 -> 768]"), std::string::npos);
  EXPECT_EQ(*winner_of(decide(int4_problem(), machine("zen4"), {}, kTable), int4_problem()), &kWide);
}

TEST(SchemeText, NamesTheActivations) {
  EXPECT_EQ(scheme_text({}), "bf16");
  const QuantKey fp8{.element = Element::e4m3, .scale = ScaleType::f32, .granularity = Granularity::tensor()};
  EXPECT_EQ(scheme_text({fp8, fp8}), "fp8 tensor, fp8 tensor static activations");
  QuantKey dynamic = fp8;
  dynamic.granularity = Granularity::token();
  dynamic.dynamic = true;
  EXPECT_EQ(scheme_text({fp8, dynamic}), "fp8 tensor, fp8 token dynamic activations");
}

}  // namespace
}  // namespace moracle
