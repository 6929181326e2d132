// The host executors of external layouts: whole layers computed from the packed bytes, held against recorded outputs
// and against the reference kernel, for every card that has a pack and every corner that it claims.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>

#include "base/memory.h"
#include "kernels/cards.h"
#include "kernels/kernel.h"
#include "kernels/layouts/find_card.h"
#include "kernels/layouts/layout_experts.h"
#include "support/golden_experts.h"
#include "support/random_experts.h"
#include "support/safetensors_reader.h"

namespace moracle {
namespace {

using test::ExpertsRecipe;
using test::GoldenFile;
using test::GoldenLayer;

// Those of one kind of module.
std::vector<const KernelCard*> packed_cards(ProblemKind kind = ProblemKind::experts) {
  std::vector<const KernelCard*> cards;
  for (const Table* table : all_tables())
    for (const TableRow& row : table->rows) {
      const KernelCard& card = *row.card;
      const bool serves = kind == ProblemKind::experts ? card.serves_experts : card.serves_linear;
      if (card.kind == CardKind::external && serves) cards.push_back(&card);
    }
  return cards;
}

// Every scheme that a card claims, with each group width, scale type and symmetry.
std::vector<Scheme> claimed_schemes(const KernelCard& card) {
  std::vector<Scheme> schemes;
  for (const SchemeRule& rule : card.schemes) {
    std::vector<Granularity> granularities{{.kind = rule.granularity}};
    if (rule.granularity == Granularity::Kind::block) granularities = {Granularity::block(128, 128)};
    if (rule.granularity == Granularity::Kind::group) {
      granularities.clear();
      for (const std::int32_t width : card.group_sizes)
        if (rule.cols == 0 || rule.cols == width) granularities.push_back(Granularity::group(width));
    }
    std::vector<ScaleType> scales{rule.scale};
    if (rule.scale == ScaleType::f32) scales = {ScaleType::f16, ScaleType::bf16, ScaleType::f32};
    for (const Granularity& granularity : granularities)
      for (const ScaleType scale : scales)
        for (const bool symmetric : {true, false}) {
          if (!symmetric && !rule.allow_asymmetric) continue;
          Scheme scheme{.weight = {.element = rule.element,
                                   .scale = scale,
                                   .granularity = granularity,
                                   .symmetric = symmetric,
                                   .second_level = rule.second_level}};
          if (rule.activation) scheme.activation = rule.activation_key;
          schemes.push_back(scheme);
        }
  }
  return schemes;
}

// The selection's yes: nothing speaks against the card but that this build has no device kernel for it.
bool chosen(const KernelCard& card, const Problem& problem) {
  const auto table = table_for(problem.scheme);
  EXPECT_TRUE(table.ok()) << to_string(problem.scheme);
  const Decision decision = decide(problem, device_of(card), {.pinned = std::string(card.backend)}, **table);
  EXPECT_EQ(decision.winner, nullptr) << card.id << ": a external kernel runs nowhere by itself";
  return decision.best_if_built == &card;
}

// Weights are exact in every layout but for these roundings, relative to a weight: scales become bf16 where a layout's
// are 16 bits wide and the checkpoint's wider (2^-9), and NVFP4's smallest block scales become 0, which are below 2^-6
// of a largest one between 224 and 448 (2^-13). Gate, up and down each add theirs; a factor of two is left for the
// activation between them. Sums are f32: 1e-5.
// The kernels of this host may round activations: x for gate and up, and what down reads.
double weight_bound(const KernelCard& card, const QuantKey& key) {
  if (card.kind == CardKind::native) return std::max(1e-5, 3 * relative_rounding(card.inputs));
  if (card.backend != "marlin") return 1e-5;
  if (key.scale == ScaleType::f32) return 6.0 / 512.0;
  return key.element == Element::e2m1 && key.second_level ? 6.0 / 8192.0 : 1e-5;
}

// Quantized activations: a difference in the last bits may move a hidden value over a tie, and one code changes by a
// step: 1/127 of a row's largest value (int8), 2^-4 of a value (E4M3), 2^-2 (E2M1). One row of a layer may meet such a
// tie; the others are as good as without.
double tie_bound(const KernelCard& card, const Scheme& scheme) {
  if (!scheme.activation) return weight_bound(card, scheme.weight);
  switch (scheme.activation->element) {
    case Element::int8:
      return 1.0 / 127.0;
    case Element::e4m3:
      return 1.0 / 16.0;
    default:
      return 1.0 / 4.0;
  }
}

// Relative errors of the rows of `width`, the largest last.
std::vector<double> row_errors(std::span<const float> found, std::span<const float> wanted, std::size_t width) {
  std::vector<double> rows;
  for (std::size_t at = 0; at < wanted.size(); at += width) {
    double difference = 0.0;
    double norm = 0.0;
    for (std::size_t i = at; i < at + width; ++i) {
      difference += std::pow(static_cast<double>(found[i]) - static_cast<double>(wanted[i]), 2);
      norm += std::pow(static_cast<double>(wanted[i]), 2);
    }
    rows.push_back(std::sqrt(difference / norm));
    EXPECT_TRUE(std::isfinite(rows.back()));
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

void expect_layer(const KernelCard& card, const CanonicalExperts& experts, const std::vector<float>& found,
                  const std::vector<float>& wanted, const std::string& what) {
  ASSERT_EQ(found.size(), wanted.size()) << what;
  const auto rows = row_errors(found, wanted, static_cast<std::size_t>(experts.hidden));
  EXPECT_LE(rows.back(), tie_bound(card, experts.scheme)) << what;
  ASSERT_GT(rows.size(), 1U);
  EXPECT_LE(rows[rows.size() - 2], weight_bound(card, experts.scheme.weight)) << what;
}

struct Routed {
  std::vector<float> x;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  std::int64_t top_k;
};

std::vector<float> run(const KernelCard& card, const CanonicalExperts& experts, const ActivationSpec& activation,
                       const Routed& routed, int threads) {
  ThreadPool pool(threads);
  const KernelImplementation* implementation = find_implementation(card.id);
  if (implementation == nullptr || implementation->pack_experts == nullptr) {
    ADD_FAILURE() << card.id << " has no pack";
    return {};
  }
  auto packed = implementation->pack_experts(experts, {.pool = pool, .activation = activation});
  if (!packed.ok()) {
    ADD_FAILURE() << card.id << ": " << packed.error().message();
    return {};
  }
  EXPECT_GT((*packed)->bytes(), 0U);
  const ExpertsInput input{.tokens = static_cast<std::int64_t>(routed.x.size()) / experts.hidden,
                           .top_k = routed.top_k,
                           .x = routed.x.data(),
                           .ids = routed.ids.data(),
                           .weights = routed.weights.data()};
  auto workspace = PageBuffer::allocate((*packed)->workspace_bytes(input.tokens, routed.top_k, threads));
  std::vector<float> out(routed.x.size(), std::nanf(""));
  Stream stream(pool);
  (*packed)->run({.stream = stream, .workspace = {workspace->data(), workspace->size()}}, input, out.data());
  return out;
}

const KernelCard& reference_for(const Scheme& scheme) {
  return *(*table_for(scheme))->rows.back().card;
}

Problem problem_for(const CanonicalExperts& experts, const ActivationSpec& activation, std::int64_t top_k) {
  return {.kind = ProblemKind::experts,
          .scheme = experts.scheme,
          .experts = static_cast<std::int64_t>(experts.experts.size()),
          .top_k = top_k,
          .hidden = experts.hidden,
          .intermediate = experts.intermediate,
          .activation = activation,
          .bias = experts.bias,
          .zero_points = experts.zero_points,
          .act_order = experts.act_order,
          .own_up_order = has_own_up_order(experts),
          .interleaved = experts.interleaved};
}

class LayoutGolden : public ::testing::TestWithParam<GoldenLayer> {};

TEST_P(LayoutGolden, WholeLayersFromPackedBytes) {
  const GoldenFile file(GetParam().file);
  const GoldenFile common("moe_common");
  const Routed routed{common.bf16("x_bf16"), common.values<std::int32_t>("topk_ids"),
                      common.values<float>("topk_weights"), test::kGoldenTopK};
  const std::pair<const char*, ActivationSpec> forms[] = {
      {"silu.out_f32", {}}, {"swigluoai.out_f32", {.fn = ActivationFn::swigluoai, .limit = 7.0F}}};
  for (const bool interleaved : {false, true}) {
    const auto& [output, activation] = forms[interleaved ? 1 : 0];
    const auto experts = test::open_golden(GetParam(), interleaved);
    ASSERT_TRUE(experts.has_value());
    const auto wanted = file.values<float>(output);
    for (const KernelCard* card : packed_cards()) {
      ReasonTexts texts;
      if (!mismatches(problem_for(*experts, activation, test::kGoldenTopK), device_of(*card), {}, *card, texts).empty())
        continue;
      const auto found = run(*card, *experts, activation, routed, 2);
      expect_layer(*card, *experts, found, wanted, std::string(card->id) + " " + output);
      if (found.empty()) continue;
      const auto rows = row_errors(found, wanted, test::kGoldenHidden);
      std::printf("%-28s %-18s %-24s row max %.1e, second %.1e\n", GetParam().file, output,
                  std::string(card->id).c_str(), rows.back(), rows[rows.size() - 2]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, LayoutGolden, ::testing::ValuesIn(test::golden_layers()),
                         [](const auto& info) { return std::string(info.param.file).substr(4); });

Routed random_tokens(const CanonicalExperts& experts, std::int64_t tokens, std::int64_t top_k, std::mt19937& rng) {
  std::normal_distribution<float> value(0.0F, 1.0F);
  std::uniform_real_distribution<float> weight(0.1F, 1.0F);
  std::vector<std::int32_t> all(experts.experts.size());
  std::iota(all.begin(), all.end(), 0);
  Routed routed{std::vector<float>(static_cast<std::size_t>(tokens * experts.hidden)), {}, {}, top_k};
  for (float& x : routed.x) x = value(rng);
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::shuffle(all.begin(), all.end(), rng);
    for (std::int64_t j = 0; j < top_k; ++j) {
      routed.ids.push_back(all[static_cast<std::size_t>(j)]);
      routed.weights.push_back(weight(rng));
    }
  }
  return routed;
}

struct Corner {
  Scheme scheme;
  std::int64_t hidden, intermediate;
  bool bias, act_order;
};

// The smallest sizes that a card takes, and larger ones that fill neither tiles nor groups.
std::vector<Corner> corners(const KernelCard& card) {
  std::vector<Corner> all;
  const std::int64_t hidden = card.hidden_multiple;
  const std::int64_t inner = card.intermediate_multiple;
  for (const Scheme& scheme : claimed_schemes(card)) {
    const bool grouped = scheme.weight.granularity.kind == Granularity::Kind::group;
    for (const auto& [h, n] : {std::pair{std::max<std::int64_t>(hidden, 2), std::max<std::int64_t>(inner, 2)},
                               std::pair{(140 / hidden + 1) * hidden, (90 / inner + 1) * inner}})
      for (const bool bias : {false, true}) {
        if (bias && !card.bias) continue;
        all.push_back({scheme, h, n, bias, false});
        if (card.act_order && grouped) all.push_back({scheme, h, n, bias, true});
      }
  }
  return all;
}

class PackedCards : public ::testing::TestWithParam<const KernelCard*> {};

TEST_P(PackedCards, AYesIsFollowedByAPackAndARunForEveryCorner) {
  const KernelCard& card = *GetParam();
  std::mt19937 rng(7);
  std::size_t turn = 0;
  for (const Corner& corner : corners(card)) {
    const ExpertsRecipe recipe{.key = corner.scheme.weight,
                               .activation = corner.scheme.activation,
                               .experts = 3,
                               .hidden = corner.hidden,
                               .intermediate = corner.intermediate,
                               .act_order = corner.act_order,
                               .shared_gate_up_order = true,
                               .bias = corner.bias};
    const CanonicalExperts experts = test::random_experts(recipe, rng);
    // Functions take turns over the corners: they meet no weight.
    const ActivationFn fn = card.activations[turn++ % card.activations.size()];
    const ActivationSpec activation{.fn = fn, .limit = fn == ActivationFn::silu ? 0.0F : 0.7F};
    const std::string what = std::string(card.id) + " " + to_string(corner.scheme) + " " +
                             std::to_string(corner.hidden) + " x " + std::to_string(corner.intermediate) +
                             (corner.act_order ? ", act-order" : "") + (corner.bias ? ", bias" : "");
    ASSERT_TRUE(chosen(card, problem_for(experts, activation, 2))) << what;
    const Routed routed = random_tokens(experts, 5, 2, rng);
    const auto found = run(card, experts, activation, routed, 2);
    expect_layer(card, experts, found, run(reference_for(corner.scheme), experts, activation, routed, 1), what);
  }
}

// Gate and up see one input, so a quantizer gives them one order; a checkpoint may still bring two. Every card that
// takes reordered columns says at selection whether it can have both, and one that says yes packs and runs.
TEST(LayoutExecutors, AnOrderOfUpsOwnIsRefusedAtSelectionOrRuns) {
  const QuantKey key{.element = Element::int4, .scale = ScaleType::f16, .granularity = Granularity::group(32)};
  std::mt19937 rng(11);
  std::size_t refused = 0;
  std::size_t ran = 0;
  for (const bool shared : {true, false}) {
    const CanonicalExperts experts = test::random_experts({.key = key,
                                                           .experts = 3,
                                                           .hidden = 256,
                                                           .intermediate = 128,
                                                           .act_order = true,
                                                           .shared_gate_up_order = shared},
                                                          rng);
    const Problem problem = problem_for(experts, {}, 2);
    ASSERT_EQ(problem.own_up_order, !shared);
    const Routed routed = random_tokens(experts, 5, 2, rng);
    const auto wanted = run(reference_for(experts.scheme), experts, {}, routed, 1);
    for (const TableRow& row : (*table_for(experts.scheme))->rows) {
      const KernelCard& card = *row.card;
      const bool external = card.kind == CardKind::external;
      ReasonTexts texts;
      const auto reasons = mismatches(problem, external ? device_of(card) : probe_machine(), {}, card, texts);
      if (reasons.empty()) {
        expect_layer(card, experts, run(card, experts, {}, routed, 2), wanted, std::string(card.id));
        ++ran;
      } else if (external && card.act_order && card.serves_experts) {
        ASSERT_EQ(reasons.size(), 1U) << card.id;
        EXPECT_EQ(reasons[0].rule, Rule::act_order) << card.id;
        EXPECT_FALSE(shared) << card.id;
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 0U);
  EXPECT_GT(ran, 0U);
}

TEST_P(PackedCards, EveryActivationFunction) {
  const KernelCard& card = *GetParam();
  std::mt19937 rng(8);
  const Corner corner = corners(card).front();
  const CanonicalExperts experts = test::random_experts({.key = corner.scheme.weight,
                                                         .activation = corner.scheme.activation,
                                                         .experts = 2,
                                                         .hidden = corner.hidden,
                                                         .intermediate = corner.intermediate},
                                                        rng);
  for (const ActivationFn fn : card.activations) {
    const ActivationSpec activation{.fn = fn, .limit = 0.7F};
    ASSERT_TRUE(chosen(card, problem_for(experts, activation, 1)));
    const Routed routed = random_tokens(experts, 3, 1, rng);
    const auto found = run(card, experts, activation, routed, 1);
    expect_layer(card, experts, found, run(reference_for(corner.scheme), experts, activation, routed, 1),
                 std::string(card.id) + " " + std::string(to_string(fn)));
  }
}

// A linear of any size: what fills no tile is padded.
class PackedLinears : public ::testing::TestWithParam<const KernelCard*> {};

TEST_P(PackedLinears, AYesIsFollowedByAPackAndARunForEveryCorner) {
  constexpr std::int64_t kTokens = 3;
  const KernelCard& card = *GetParam();
  ThreadPool pool(2);
  std::mt19937 rng(12);
  for (const Scheme& scheme : claimed_schemes(card))
    for (const auto& [in, out] : {std::pair<std::int64_t, std::int64_t>{2, 1}, {140, 90}, {256, 64}})
      for (const bool act_order : {false, true})
        for (const bool bias : {false, true}) {
          const bool grouped = scheme.weight.granularity.kind == Granularity::Kind::group;
          if ((bias && !card.bias) || (act_order && (!card.act_order || !grouped))) continue;
          const CanonicalLinear linear =
              test::random_linear({scheme.weight, scheme.activation, out, in, act_order, bias}, rng);
          const std::string what = std::string(card.id) + " " + to_string(scheme) + " " + std::to_string(in) + " -> " +
                                   std::to_string(out) + (act_order ? ", act-order" : "") + (bias ? ", bias" : "");
          ASSERT_TRUE(chosen(card, {.kind = ProblemKind::linear,
                                    .scheme = scheme,
                                    .hidden = in,
                                    .intermediate = out,
                                    .bias = bias,
                                    .zero_points = !scheme.weight.symmetric,
                                    .act_order = act_order}))
              << what;
          std::normal_distribution<float> value(0.0F, 1.0F);
          std::vector<float> x(static_cast<std::size_t>(kTokens * in));
          for (float& one : x) one = value(rng);
          std::vector<std::vector<float>> results;
          for (const KernelCard* which : {&card, &reference_for(scheme)}) {
            const KernelImplementation* implementation = find_implementation(which->id);
            ASSERT_NE(implementation, nullptr) << which->id;
            ASSERT_NE(implementation->pack_linear, nullptr) << which->id;
            const auto packed = implementation->pack_linear(linear, {.pool = pool});
            ASSERT_TRUE(packed.ok()) << what << ": " << packed.error().message();
            auto workspace = PageBuffer::allocate((*packed)->workspace_bytes(kTokens, pool.threads()));
            std::vector<float>& y = results.emplace_back(static_cast<std::size_t>(kTokens * out), std::nanf(""));
            Stream stream(pool);
            (*packed)->run({.stream = stream, .workspace = {workspace->data(), workspace->size()}}, kTokens, x.data(),
                           y.data());
          }
          EXPECT_LE(row_errors(results[0], results[1], results[0].size()).back(), weight_bound(card, scheme.weight))
              << what;
        }
}

std::string card_name(const ::testing::TestParamInfo<const KernelCard*>& info) {
  std::string name(info.param->id);
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Layouts, PackedCards, ::testing::ValuesIn(packed_cards()), card_name);
INSTANTIATE_TEST_SUITE_P(Layouts, PackedLinears, ::testing::ValuesIn(packed_cards(ProblemKind::linear)), card_name);

// Every external card has a pack for what it serves, and is tried above.
TEST(LayoutExecutors, EveryForeignCardHasItsPacks) {
  for (const Table* table : all_tables())
    for (const TableRow& row : table->rows) {
      const KernelCard& card = *row.card;
      if (card.kind != CardKind::external) continue;
      const KernelImplementation* implementation = find_implementation(card.id);
      ASSERT_NE(implementation, nullptr) << card.id;
      EXPECT_EQ(implementation->pack_experts != nullptr, card.serves_experts) << card.id;
      EXPECT_EQ(implementation->pack_linear != nullptr, card.serves_linear) << card.id;
    }
}

// Interleaved rows on disk shared their scales with rows that are elsewhere now. A kernel with one scale a block
// says no at selection; one whose loader takes a scale a row says yes and packs (LayoutGolden runs both).
TEST(LayoutExecutors, InterleavedRowsAreRefusedAtSelectionWhereABlockHasOneScale) {
  std::size_t refusing = 0;
  for (const KernelCard* card : packed_cards()) {
    const Scheme scheme = claimed_schemes(*card).front();
    Problem problem{.scheme = scheme, .experts = 8, .top_k = 2, .hidden = 256, .intermediate = 256};
    ReasonTexts texts;
    ASSERT_TRUE(mismatches(problem, device_of(*card), {}, *card, texts).empty()) << card->id;
    problem.interleaved = true;
    const auto reasons = mismatches(problem, device_of(*card), {}, *card, texts);
    const auto kind = scheme.weight.granularity.kind;
    const bool shared = kind == Granularity::Kind::tensor || kind == Granularity::Kind::block;
    const bool by_rows = card->backend == "triton" || card->backend == "aiter" || card->backend == "marlin";
    ASSERT_EQ(reasons.size(), shared && !by_rows ? 1U : 0U) << card->id;
    if (reasons.empty()) continue;
    EXPECT_EQ(reasons[0].rule, Rule::source_layout) << card->id;
    EXPECT_NE(reasons[0].found.find("interleaved"), std::string::npos) << card->id;
    ++refusing;
  }
  EXPECT_EQ(refusing, 4U);
}

TEST(LayoutExecutors, LayoutsAreAskedForByName) {
  const QuantKey int4{.element = Element::int4, .scale = ScaleType::f16, .granularity = Granularity::group(128)};
  Problem problem{.scheme = {.weight = int4}, .experts = 8, .top_k = 2, .hidden = 256, .intermediate = 128};
  const auto marlin = layout_card_for("marlin", problem);
  ASSERT_TRUE(marlin.ok());
  EXPECT_EQ((*marlin)->id, "marlin.wna16");
  EXPECT_EQ(layout_card_for("avx2", problem).error().code, "oracle.layout");
  problem.hidden = 200;
  const auto refused = layout_card_for("marlin", problem);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().found.find("multiple of 128"), std::string::npos) << refused.error().message();
}

TEST(LayoutExecutors, B12xKeepsAOneForEachExpert) {
  const auto recorded = GoldenFile("nvfp4_moe_layouts").values<float>("b12x.fc2_input_scale_ones");  // of one expert
  const QuantKey key{
      .element = Element::e2m1, .scale = ScaleType::e4m3, .granularity = Granularity::group(16), .second_level = true};
  std::mt19937 rng(9);
  const CanonicalExperts experts =
      test::random_experts({.key = key, .experts = 3, .hidden = 64, .intermediate = 64}, rng);
  ThreadPool pool(1);
  const auto layer = layout::pack_b12x_layer<layout::kB12xNvfp4>(experts, {.pool = pool});
  ASSERT_TRUE(layer.ok());
  EXPECT_EQ(layer->fc2_input_scale, std::vector<float>(3, recorded.at(0)));
}

}  // namespace
}  // namespace moracle
