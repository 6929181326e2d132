// Every card's corners: what a card claims is packed and run by its implementation and held against `ref`.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/cards.h"
#include "kernels/kernel.h"
#include "machine/machine.h"
#include "moe/layer_runner.h"
#include "oracle/decide.h"
#include "support/device_calls.h"
#include "support/hidden_probe.h"
#include "support/random_experts.h"
#include "support/test_device.h"

namespace moracle {
namespace {

using test::ExpertsRecipe;
using test::MatrixRecipe;
using test::random_experts;
using test::random_linear;
using test::runs_here;

// Every card of this build's own kernels but the reference.
std::vector<const KernelCard*> panel_cards() {
  std::vector<const KernelCard*> cards;
  for (const Table* table : all_tables()) {
    for (const TableRow& row : table->rows) {
      if (row.card->kind != CardKind::native || row.card->backend == "ref") continue;
      if (!row.card->rounds_weights) cards.push_back(row.card);  // those that do: tests/device/stream_test.cpp
    }
  }
  return cards;
}

// Relative error of a linear's output. Quantized activations are the same codes in both, exact in bf16 and f32, so only
// the order of f32 sums differs: sqrt(K) * 2^-24 and a margin, well below 1e-5. The same holds for 16-bit activations
// on kernels that keep them in f32. Others round each value independently, which bounds the relative error of a sum of
// many terms by the same; four times the root mean square is allowed.
double linear_bound(const KernelCard& card, const Scheme& scheme) {
  const Element element = scheme.weight.element;
  if (scheme.activation || element == Element::f16 || element == Element::f32) return 1e-5;
  return std::max(1e-5, 4 * relative_rounding(card.inputs));
}

double relative_error(const std::vector<float>& out, const std::vector<float>& ref) {
  double difference = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    difference += std::pow(static_cast<double>(out[i]) - static_cast<double>(ref[i]), 2);
    norm += std::pow(static_cast<double>(ref[i]), 2);
  }
  return std::sqrt(difference / norm);
}

std::vector<float> random_values(std::size_t count, std::mt19937& rng) {
  std::normal_distribution<float> normal(0.0F, 1.0F);
  std::vector<float> values(count);
  for (auto& v : values) v = normal(rng);
  return values;
}

struct Choices {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

Choices random_routing(std::int64_t tokens, std::int64_t top_k, std::int64_t experts, std::mt19937& rng) {
  Choices routing;
  std::vector<std::int32_t> all(static_cast<std::size_t>(experts));
  std::iota(all.begin(), all.end(), 0);
  std::uniform_real_distribution<float> weight(0.1F, 1.0F);
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::shuffle(all.begin(), all.end(), rng);
    for (std::int64_t j = 0; j < top_k; ++j) {
      routing.ids.push_back(all[static_cast<std::size_t>(j)]);
      routing.weights.push_back(weight(rng));
    }
  }
  return routing;
}

std::vector<float> run_experts(const KernelCard& card, const CanonicalExperts& experts,
                               const ActivationSpec& activation, const std::vector<float>& x, const Choices& routing,
                               std::int64_t top_k, int threads) {
  ThreadPool pool(threads);
  auto runner =
      LayerRunner::pack(card, experts, {.pool = pool, .activation = activation, .device = test::device_for(card)});
  EXPECT_TRUE(runner.ok()) << runner.error().message();
  const ExpertsInput input{.tokens = static_cast<std::int64_t>(x.size()) / experts.hidden,
                           .top_k = top_k,
                           .x = x.data(),
                           .ids = routing.ids.data(),
                           .weights = routing.weights.data()};
  EXPECT_TRUE(runner->reserve(input.tokens, top_k).ok());
  std::vector<float> out(x.size(), std::nanf(""));
  runner->run(input, out.data());
  EXPECT_TRUE(runner->status().ok());
  return out;
}

std::vector<float> run_linear(const KernelCard& card, const CanonicalLinear& linear, const std::vector<float>& x,
                              int threads, bool batch_invariant = false) {
  ThreadPool pool(threads);
  return test::run_linear(card, linear, x, pool, batch_invariant);
}

// The inputs of w2 of each (token, choice), [tokens * top_k, intermediate], as the kernel of the card quantizes them.
std::vector<float> hidden_of(const KernelCard& card, const CanonicalExperts& experts, const ActivationSpec& activation,
                             const std::vector<float>& x, const Choices& routing, std::int64_t top_k) {
  std::vector<float> hidden(routing.ids.size() * static_cast<std::size_t>(experts.intermediate));
  for (std::int64_t first = 0; first < experts.intermediate; first += experts.hidden) {
    const CanonicalExperts unit = test::with_unit_down(experts, first);
    const std::int64_t count = std::min(experts.hidden, experts.intermediate - first);
    for (std::int64_t choice = 0; choice < top_k; ++choice) {
      Choices one = routing;
      for (std::size_t i = 0; i < one.weights.size(); ++i)
        one.weights[i] = static_cast<std::int64_t>(i) % top_k == choice ? 1.0F : 0.0F;
      const auto out = run_experts(card, unit, activation, x, one, top_k, 1);
      for (std::int64_t t = 0; t < std::ssize(x) / experts.hidden; ++t) {
        std::copy_n(out.begin() + t * experts.hidden, count,
                    hidden.begin() + (t * top_k + choice) * experts.intermediate + first);
      }
    }
  }
  return hidden;
}

// The weighted sum of w2 times these inputs, in f64.
std::vector<float> down_of(const CanonicalExperts& experts, const std::vector<float>& hidden, const Choices& routing,
                           std::int64_t top_k) {
  std::vector<std::vector<float>> weights;
  for (const auto& expert : experts.experts) {
    auto all = dequantize(*expert.down.weight);
    EXPECT_TRUE(all.ok());
    weights.push_back(std::move(*all));
  }
  std::vector<double> sums(routing.ids.size() / static_cast<std::size_t>(top_k) *
                           static_cast<std::size_t>(experts.hidden));
  for (std::size_t i = 0; i < routing.ids.size(); ++i) {
    const auto id = static_cast<std::size_t>(routing.ids[i]);
    if (routing.ids[i] < 0 || id >= weights.size()) continue;
    const float* const h = hidden.data() + i * static_cast<std::size_t>(experts.intermediate);
    const auto& bias = experts.experts[id].down.bias;
    for (std::int64_t row = 0; row < experts.hidden; ++row) {
      const float* const w = weights[id].data() + row * experts.intermediate;
      double sum = bias.empty() ? 0.0 : static_cast<double>(bias[static_cast<std::size_t>(row)]);
      for (std::int64_t k = 0; k < experts.intermediate; ++k)
        sum += static_cast<double>(w[k]) * static_cast<double>(h[k]);
      sums[i / static_cast<std::size_t>(top_k) * static_cast<std::size_t>(experts.hidden) +
           static_cast<std::size_t>(row)] += static_cast<double>(routing.weights[i]) * sum;
    }
  }
  return {sums.begin(), sums.end()};
}

const KernelCard& reference_for(const Scheme& scheme) {
  const auto table = table_for(scheme);
  EXPECT_TRUE(table.ok()) << to_string(scheme);
  return *(*table)->rows.back().card;
}

// Holds a layer against `ref`, each half for itself: what w2 multiplies, and w2 times the kernel's own inputs of it. So
// neither bound has room for a rounding of the other half. Sums of f32 alone part the second half from f64; published
// activations leave the first one the same codes, but where the last bit of a sum moves a value over a tie, or a
// group's scale over one.
void expect_layer(const KernelCard& card, const CanonicalExperts& experts, const ActivationSpec& activation,
                  const std::vector<float>& x, const Choices& routing, std::int64_t top_k, const std::string& what) {
  const Scheme& scheme = experts.scheme;
  const auto out = run_experts(card, experts, activation, x, routing, top_k, 2);
  const auto own = hidden_of(card, experts, activation, x, routing, top_k);
  const auto ref = hidden_of(reference_for(scheme), experts, activation, x, routing, top_k);
  EXPECT_LE(relative_error(out, down_of(experts, own, routing, top_k)), 1e-5) << what << ": w2";
  if (!scheme.activation) {
    EXPECT_LE(relative_error(own, ref), 2 * linear_bound(card, scheme)) << what << ": w13";
    return;
  }
  std::size_t other = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (std::fabs(own[i] - ref[i]) <= 2e-5F * std::fabs(ref[i])) continue;
    ++other;
    ASSERT_LE(std::fabs(own[i] - ref[i]), 0.34F * std::fabs(ref[i]) + 0.1F) << what << ": w13, value " << i;
  }
  EXPECT_LE(other, own.size() / 25) << what << ": w13, codes that differ";
}

std::vector<ScaleType> stored_scales(const SchemeRule& rule) {
  if (rule.scale == ScaleType::f32) return {ScaleType::f16, ScaleType::bf16, ScaleType::f32};
  return {rule.scale};
}

// The schemes a card claims, with every group width and scale type it names.
std::vector<Scheme> claimed_schemes(const KernelCard& card) {
  std::vector<Scheme> schemes;
  for (const SchemeRule& rule : card.schemes) {
    Scheme scheme{.weight = {.element = rule.element}};
    if (rule.activation) scheme.activation = rule.activation_key;
    if (rule.granularity == Granularity::Kind::none) {
      schemes.push_back(scheme);
      continue;
    }
    std::vector<Granularity> granularities{{.kind = rule.granularity}};
    if (rule.granularity == Granularity::Kind::block) granularities = {Granularity::block(128, 128)};
    if (rule.granularity == Granularity::Kind::group) {
      granularities.clear();
      for (const std::int32_t width : card.group_sizes) {
        if (rule.cols == 0 || rule.cols == width) granularities.push_back(Granularity::group(width));
      }
    }
    for (const Granularity& granularity : granularities) {
      for (const ScaleType scale : stored_scales(rule)) {
        for (const bool symmetric : {true, false}) {
          if (!symmetric && !rule.allow_asymmetric) continue;
          scheme.weight = {.element = rule.element,
                           .scale = scale,
                           .granularity = granularity,
                           .symmetric = symmetric,
                           .second_level = rule.second_level};
          schemes.push_back(scheme);
        }
      }
    }
  }
  return schemes;
}

class Cards : public ::testing::TestWithParam<const KernelCard*> {
 protected:
  void SetUp() override {
    if (!runs_here(*GetParam())) GTEST_SKIP() << GetParam()->id << ": this CPU lacks its instruction set";
  }
};

// About each tile of registers; the fake device has one kernel for all.
std::vector<std::int64_t> token_counts(const KernelCard& card) {
  if (card.device != DeviceKind::cpu && !test::has_gpu()) return {1, 9, 65};
  return {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 30, 33, 65};
}

// The oracle's yes, then a pack and a run that work.
TEST_P(Cards, LinearServesEveryClaimedScheme) {
  const KernelCard& card = *GetParam();
  const Machine machine = test::machine_for(card);
  std::mt19937 rng(1);
  for (const Scheme& scheme : claimed_schemes(card)) {
    const Granularity& granularity = scheme.weight.granularity;
    const std::int64_t group = granularity.cols > 0 ? granularity.cols : 40;
    // Odd rows, and columns that end in a ragged group.
    const MatrixRecipe recipe{
        .key = scheme.weight, .activation = scheme.activation, .rows = 77, .cols = 2 * group + 24, .bias = true};
    const Problem problem{.kind = ProblemKind::linear,
                          .scheme = scheme,
                          .hidden = recipe.cols,
                          .intermediate = recipe.rows,
                          .bias = true,
                          .zero_points = !scheme.weight.symmetric};
    const Decision decision = decide(problem, machine, {.numerics = card.numerics, .pinned = std::string(card.backend)},
                                     test::table_of(scheme));
    ASSERT_EQ(decision.winner, &card) << to_string(scheme);
    const CanonicalLinear linear = random_linear(recipe, rng);
    for (const std::int64_t tokens : token_counts(card)) {
      const auto x = random_values(static_cast<std::size_t>(tokens * recipe.cols), rng);
      const double error =
          relative_error(run_linear(card, linear, x, 2), run_linear(reference_for(scheme), linear, x, 1));
      EXPECT_LE(error, linear_bound(card, scheme)) << card.id << " " << to_string(scheme) << " tokens " << tokens;
    }
  }
}

TEST_P(Cards, ExpertsServeEveryClaimedSchemeAndActivation) {
  const KernelCard& card = *GetParam();
  const Machine machine = test::machine_for(card);
  std::mt19937 rng(2);
  for (const Scheme& scheme : claimed_schemes(card)) {
    for (const ActivationFn fn : card.activations) {
      const ActivationSpec activation{.fn = fn, .limit = fn == ActivationFn::silu ? 0.0F : 0.7F};
      const ExpertsRecipe recipe{.key = scheme.weight,
                                 .activation = scheme.activation,
                                 .experts = 3,
                                 .hidden = 72,
                                 .intermediate = 56,
                                 .bias = true,
                                 .gated = is_gated(fn)};
      const Problem problem{.kind = ProblemKind::experts,
                            .scheme = scheme,
                            .experts = recipe.experts,
                            .top_k = 2,
                            .hidden = recipe.hidden,
                            .intermediate = recipe.intermediate,
                            .activation = activation,
                            .bias = true,
                            .zero_points = !scheme.weight.symmetric};
      const Decision decision = decide(
          problem, machine, {.numerics = card.numerics, .pinned = std::string(card.backend)}, test::table_of(scheme));
      ASSERT_EQ(decision.winner, &card) << to_string(scheme);
      const CanonicalExperts experts = random_experts(recipe, rng);
      const auto x = random_values(static_cast<std::size_t>(9 * recipe.hidden), rng);
      const Choices routing = random_routing(9, 2, recipe.experts, rng);
      expect_layer(card, experts, activation, x, routing, 2,
                   std::string(card.id) + " " + to_string(scheme) + " " + std::string(to_string(fn)));
    }
  }
}

TEST_P(Cards, ActOrderWithOwnAndSharedGroupIndex) {
  const KernelCard& card = *GetParam();
  if (card.schemes[0].element != Element::int4) GTEST_SKIP() << "act-order belongs to integer groups";
  std::mt19937 rng(3);
  const bool short_groups = std::count(card.group_sizes.begin(), card.group_sizes.end(), 32) > 0;
  const std::int32_t width = short_groups ? 32 : 64;
  for (const bool shared : {false, true}) {
    for (const bool symmetric : {false, true}) {
      const QuantKey key{.element = Element::int4,
                         .scale = ScaleType::f16,
                         .granularity = Granularity::group(width),
                         .symmetric = symmetric};
      const ExpertsRecipe recipe{.key = key,
                                 .experts = 5,
                                 .hidden = 128,
                                 .intermediate = 3 * width,
                                 .act_order = true,
                                 .shared_gate_up_order = shared};
      const CanonicalExperts experts = random_experts(recipe, rng);
      const auto x = random_values(static_cast<std::size_t>(11 * recipe.hidden), rng);
      const Choices routing = random_routing(11, 3, recipe.experts, rng);
      expect_layer(card, experts, {}, x, routing, 3, std::string(card.id));
    }
  }
}

TEST_P(Cards, RaggedRouting) {
  const KernelCard& card = *GetParam();
  std::mt19937 rng(4);
  const Scheme scheme = claimed_schemes(card).front();
  const ExpertsRecipe recipe{
      .key = scheme.weight, .activation = scheme.activation, .experts = 8, .hidden = 64, .intermediate = 64};
  const CanonicalExperts experts = random_experts(recipe, rng);
  struct Case {
    const char* name;
    std::int64_t tokens, top_k;
    std::vector<std::int32_t> ids;
  };
  const std::vector<Case> cases{
      {"all tokens on one expert", 17, 1, std::vector<std::int32_t>(17, 5)},
      {"one token, many choices", 1, 8, {7, 6, 5, 4, 3, 2, 1, 0}},
      {"choices that are not here", 3, 2, {-1, 2, 3, -1, -1, -1}},
      {"an id beyond the experts contributes nothing", 2, 1, {8, 1}},
  };
  for (const Case& c : cases) {
    const auto x = random_values(static_cast<std::size_t>(c.tokens * recipe.hidden), rng);
    const Choices routing{c.ids, std::vector<float>(c.ids.size(), 0.25F)};
    const auto out = run_experts(card, experts, {}, x, routing, c.top_k, 2);
    for (const float v : out) ASSERT_TRUE(std::isfinite(v)) << c.name;
    expect_layer(card, experts, {}, x, routing, c.top_k, c.name);
  }
  const auto none = run_experts(card, experts, {}, random_values(128, rng), {{-1, -1}, {1.0F, 1.0F}}, 1, 2);
  for (const float v : none) EXPECT_EQ(v, 0.0F);
}

TEST_P(Cards, SameBitsForAnyThreadCount) {
  const KernelCard& card = *GetParam();
  std::mt19937 rng(5);
  const Scheme scheme = claimed_schemes(card).front();
  const ExpertsRecipe recipe{
      .key = scheme.weight, .activation = scheme.activation, .experts = 6, .hidden = 96, .intermediate = 160};
  const CanonicalExperts experts = random_experts(recipe, rng);
  const auto x = random_values(static_cast<std::size_t>(23 * recipe.hidden), rng);
  const Choices routing = random_routing(23, 3, recipe.experts, rng);
  const auto one = run_experts(card, experts, {}, x, routing, 3, 1);
  for (const int threads : {2, 3, 5}) EXPECT_EQ(one, run_experts(card, experts, {}, x, routing, 3, threads)) << threads;
}

// What a card says of itself: a token's result does not depend on the tokens beside it.
TEST_P(Cards, SameBitsForAnyBatchWhereTheCardSaysSo) {
  const KernelCard& card = *GetParam();
  if (!card.batch_invariant) GTEST_SKIP() << card.id << " does not claim it";
  if (card.device == DeviceKind::cuda && !test::has_gpu())
    GTEST_SKIP() << card.id << ": the fake device has no batches";
  std::mt19937 rng(7);
  for (const Scheme& scheme : claimed_schemes(card)) {
    const MatrixRecipe recipe{.key = scheme.weight, .activation = scheme.activation, .rows = 40, .cols = 1200};
    const CanonicalLinear linear = random_linear(recipe, rng);
    constexpr std::int64_t kTokens = 70;  // tiles of every size and runs of decoded weights
    const auto x = random_values(static_cast<std::size_t>(kTokens * recipe.cols), rng);
    const auto all = run_linear(card, linear, x, 2, true);
    for (const std::int64_t batch : {1, 2, 3, 5, 29}) {
      for (std::int64_t first = 0; first + batch <= kTokens; first += batch) {
        const auto from = x.begin() + first * recipe.cols;
        const auto part = run_linear(card, linear, {from, from + batch * recipe.cols}, 1, true);
        ASSERT_TRUE(std::equal(part.begin(), part.end(), all.begin() + first * recipe.rows))
            << card.id << " " << to_string(scheme) << ": " << batch << " tokens from " << first;
      }
    }
  }
}

// More tokens than a run has, and more panels than a run meets before the next one does.
TEST_P(Cards, SameBitsForAnyBatchOfALargeLinear) {
  const KernelCard& card = *GetParam();
  const Scheme scheme = claimed_schemes(card).front();
  if (!card.batch_invariant || scheme.weight.quantized()) GTEST_SKIP() << card.id << ": one dense layout is enough";
  if (card.device == DeviceKind::cuda && !test::has_gpu())
    GTEST_SKIP() << card.id << ": the fake device has no batches";
  std::mt19937 rng(10);
  const MatrixRecipe recipe{.key = scheme.weight, .activation = {}, .rows = 1200, .cols = 4096};
  const CanonicalLinear linear = random_linear(recipe, rng);
  constexpr std::int64_t kTokens = 130;
  const auto x = random_values(static_cast<std::size_t>(kTokens * recipe.cols), rng);
  const auto all = run_linear(card, linear, x, 1, true);
  constexpr std::int64_t kBatch = 26;
  for (std::int64_t first = 0; first < kTokens; first += kBatch) {
    const auto from = x.begin() + first * recipe.cols;
    const auto part = run_linear(card, linear, {from, from + kBatch * recipe.cols}, 2, true);
    ASSERT_TRUE(std::equal(part.begin(), part.end(), all.begin() + first * recipe.rows)) << card.id << ": " << first;
  }
}

// Extreme gate values must saturate, not turn into NaN.
TEST_P(Cards, ActivationsSurviveExtremes) {
  const KernelCard& card = *GetParam();
  std::mt19937 rng(6);
  const Scheme scheme = claimed_schemes(card).front();
  for (const ActivationFn fn : card.activations) {
    const CanonicalExperts experts = random_experts({.key = scheme.weight,
                                                     .activation = scheme.activation,
                                                     .experts = 2,
                                                     .hidden = 64,
                                                     .intermediate = 64,
                                                     .gated = is_gated(fn)},
                                                    rng);
    auto x = random_values(64, rng);
    for (auto& v : x) v *= 1e4F;
    const auto out = run_experts(card, experts, {.fn = fn}, x, {{0, 1}, {0.5F, 0.5F}}, 2, 1);
    for (const float v : out) EXPECT_TRUE(std::isfinite(v)) << to_string(fn);
  }
}

// The codes furthest from zero on either side.
struct ExtremeCodes {
  std::uint8_t least, most;
};
std::optional<ExtremeCodes> extreme_codes(Element element) {
  switch (element) {
    case Element::int4:
      return ExtremeCodes{0, 15};
    case Element::int8:
      return ExtremeCodes{0, 255};
    case Element::e2m1:
      return ExtremeCodes{0x0F, 0x07};
    default:
      return std::nullopt;
  }
}

// Integer sums have no room to spare: every product of a group at its largest, all of one sign.
TEST_P(Cards, SumsHoldTheLargestProducts) {
  const KernelCard& card = *GetParam();
  std::mt19937 rng(7);
  int tried = 0;
  for (const Scheme& scheme : claimed_schemes(card)) {
    const auto codes = extreme_codes(scheme.weight.element);
    if (!codes) continue;
    const std::int64_t cols = std::max<std::int64_t>(2 * scheme.weight.granularity.cols, 512);
    CanonicalLinear linear =
        random_linear({.key = scheme.weight, .activation = scheme.activation, .rows = 64, .cols = cols}, rng);
    MatrixPanel all;
    ASSERT_TRUE(linear.weight->read(0, 64, all).ok());
    for (std::size_t i = 0; i < all.codes.size(); ++i)
      all.codes[i] = i / static_cast<std::size_t>(cols) % 2 == 0 ? codes->least : codes->most;
    linear.weight = std::make_shared<test::MemoryMatrix>(linear.weight->spec(), std::move(all));
    std::vector<float> x;
    for (const auto& [even, odd] :
         {std::pair{1.0F, 1.0F}, {-1.0F, -1.0F}, {1.0F, -1.0F}, {0.0F, 1.0F}, {-1.0F, 0.0F}}) {
      for (std::int64_t k = 0; k < cols; ++k) x.push_back(k % 2 == 0 ? even : odd);
    }
    const double error =
        relative_error(run_linear(card, linear, x, 2), run_linear(reference_for(scheme), linear, x, 1));
    EXPECT_LE(error, linear_bound(card, scheme)) << card.id << " " << to_string(scheme);
    ++tried;
  }
  if (tried == 0) GTEST_SKIP() << card.id << " multiplies numbers";
}

// Sums of integers are the same numbers whatever instruction makes them, and both targets scale them alike.
TEST(IntegerSums, AvxVnniHasTheBitsOfAvx2) {
  const std::vector<const KernelCard*> cards = panel_cards();
  std::mt19937 rng(8);
  std::size_t compared = 0;
  for (const KernelCard* const card : cards) {
    if (card->backend != "avxvnni") continue;
    if (!runs_here(*card)) GTEST_SKIP() << card->id << ": this CPU lacks its instruction set";
    const std::string id = "cpu.avx2" + std::string(card->id.substr(std::string_view("cpu.avxvnni").size()));
    const auto other = std::ranges::find(cards, std::string_view(id), &KernelCard::id);
    ASSERT_NE(other, cards.end()) << id;
    const std::vector<Scheme> served = claimed_schemes(**other);
    for (const Scheme& scheme : claimed_schemes(*card)) {
      // Under int8 weights AVX2 keeps activations in 16 bits, whatever the policy.
      if (std::ranges::find(served, scheme) == served.end()) continue;
      const CanonicalLinear linear =
          random_linear({.key = scheme.weight, .activation = scheme.activation, .rows = 77, .cols = 1200}, rng);
      const auto x = random_values(std::size_t{13} * 1200, rng);
      EXPECT_EQ(run_linear(*card, linear, x, 2), run_linear(**other, linear, x, 1)) << id << " " << to_string(scheme);
      ++compared;
    }
  }
#if defined(__x86_64__)
  EXPECT_GT(compared, 0U);
#endif
}

std::string card_name(const ::testing::TestParamInfo<const KernelCard*>& info) {
  std::string name(info.param->id);
  std::replace_if(name.begin(), name.end(), [](char c) { return c == '.' || c == '-'; }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Panel, Cards, ::testing::ValuesIn(panel_cards()), card_name);

}  // namespace
}  // namespace moracle
