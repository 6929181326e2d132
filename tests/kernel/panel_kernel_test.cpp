// Every card's corners: what a card claims is packed and run by its implementation and held against `ref`.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "base/memory.h"
#include "kernels/cards.h"
#include "kernels/kernel.h"
#include "machine/machine.h"
#include "oracle/decide.h"
#include "support/random_experts.h"

namespace moracle {
namespace {

using test::ExpertsRecipe;
using test::MatrixRecipe;
using test::random_experts;
using test::random_linear;

const std::vector<const KernelCard*>& panel_cards() {
  static const std::vector<const KernelCard*> cards{&kCardAvx512Bf16Wna16, &kCardAvx512Wna16, &kCardAvx2Wna16,
                                                    &kCardAvx512Bf16Dense, &kCardAvx512Dense, &kCardAvx2Dense};
  return cards;
}

bool runs_here(const KernelCard& card) {
  const Machine machine = probe_machine();
  return (machine.cpu_features & card.cpu_features) == card.cpu_features;
}

// Relative error of the whole output. Rounding an activation to bf16 is off by at most 2^-9 relative, independent from
// value to value; a layer rounds twice (x and h), so the relative error of a sum of many terms stays below
// 2 * 2^-9. f32 kernels differ from `ref` by the order of their sums only: sqrt(K) * 2^-24 and a margin for the
// activation's exponential, well below 1e-5.
double bound(const KernelCard& card, const QuantKey& key) {
  const bool rounds =
      has(card.cpu_features, CpuFeature::avx512_bf16) && key.element != Element::f16 && key.element != Element::f32;
  return rounds ? 2.0 / 512.0 : 1e-5;
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

struct Routing {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

Routing random_routing(std::int64_t tokens, std::int64_t top_k, std::int64_t experts, std::mt19937& rng) {
  Routing routing;
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
                               const ActivationSpec& activation, const std::vector<float>& x, const Routing& routing,
                               std::int64_t top_k, int threads) {
  ThreadPool pool(threads);
  const KernelImplementation* implementation = find_implementation(card.id);
  EXPECT_NE(implementation, nullptr) << card.id;
  auto packed = implementation->pack_experts(experts, {.pool = pool, .activation = activation});
  EXPECT_TRUE(packed.ok()) << packed.error().message();
  const ExpertsInput input{.tokens = static_cast<std::int64_t>(x.size()) / experts.hidden,
                           .top_k = top_k,
                           .x = x.data(),
                           .ids = routing.ids.data(),
                           .weights = routing.weights.data()};
  auto workspace = PageBuffer::allocate((*packed)->workspace_bytes(input.tokens, top_k, threads));
  std::vector<float> out(x.size(), std::nanf(""));
  (*packed)->run({.pool = pool, .workspace = {workspace->data(), workspace->size()}}, input, out.data());
  return out;
}

std::vector<float> run_linear(const KernelCard& card, const CanonicalLinear& linear, const std::vector<float>& x,
                              int threads) {
  ThreadPool pool(threads);
  auto packed = find_implementation(card.id)->pack_linear(linear, {.pool = pool});
  EXPECT_TRUE(packed.ok()) << packed.error().message();
  const MatrixSpec& spec = linear.weight->spec();
  const std::int64_t tokens = static_cast<std::int64_t>(x.size()) / spec.cols;
  auto workspace = PageBuffer::allocate((*packed)->workspace_bytes(tokens, threads));
  std::vector<float> y(static_cast<std::size_t>(tokens * spec.rows), std::nanf(""));
  (*packed)->run({.pool = pool, .workspace = {workspace->data(), workspace->size()}}, tokens, x.data(), y.data());
  return y;
}

const KernelCard& reference_for(const QuantKey& key) {
  return key.quantized() ? kCardRefWna16 : kCardRefDense;
}

// The keys a card claims, with every group width it names.
std::vector<QuantKey> claimed_keys(const KernelCard& card) {
  std::vector<QuantKey> keys;
  for (const SchemeRule& rule : card.schemes) {
    if (rule.granularity == Granularity::Kind::none) {
      keys.push_back({.element = rule.element});
      continue;
    }
    for (const bool symmetric : {true, false}) {
      if (!symmetric && !rule.allow_asymmetric) continue;
      for (const ScaleType scale : {ScaleType::f16, ScaleType::bf16, ScaleType::f32}) {
        if (rule.granularity == Granularity::Kind::channel) {
          keys.push_back(
              {.element = rule.element, .scale = scale, .granularity = Granularity::channel(), .symmetric = symmetric});
          continue;
        }
        for (const std::int32_t group : card.group_sizes) {
          keys.push_back({.element = rule.element,
                          .scale = scale,
                          .granularity = Granularity::group(group),
                          .symmetric = symmetric});
        }
      }
    }
  }
  return keys;
}

class Cards : public ::testing::TestWithParam<const KernelCard*> {
 protected:
  void SetUp() override {
    if (!runs_here(*GetParam())) GTEST_SKIP() << GetParam()->id << ": this CPU lacks its instruction set";
  }
};

TEST_P(Cards, LinearServesEveryClaimedKey) {
  const KernelCard& card = *GetParam();
  std::mt19937 rng(1);
  for (const QuantKey& key : claimed_keys(card)) {
    const std::int64_t group = key.granularity.kind == Granularity::Kind::group ? key.granularity.cols : 40;
    // Odd rows, and columns that end in a ragged group.
    const MatrixRecipe recipe{.key = key, .rows = 77, .cols = 2 * group + 24, .bias = true};
    const CanonicalLinear linear = random_linear(recipe, rng);
    for (const std::int64_t tokens : {1, 2, 3, 4, 5, 6, 7, 13}) {
      const auto x = random_values(static_cast<std::size_t>(tokens * recipe.cols), rng);
      const double error = relative_error(run_linear(card, linear, x, 2), run_linear(reference_for(key), linear, x, 1));
      EXPECT_LE(error, bound(card, key)) << card.id << " " << to_string(key) << " tokens " << tokens;
    }
  }
}

TEST_P(Cards, ExpertsServeEveryClaimedKeyAndActivation) {
  const KernelCard& card = *GetParam();
  std::mt19937 rng(2);
  for (const QuantKey& key : claimed_keys(card)) {
    for (const ActivationFn fn : card.activations) {
      const ActivationSpec activation{.fn = fn, .limit = fn == ActivationFn::silu ? 0.0F : 0.7F};
      const ExpertsRecipe recipe{.key = key, .experts = 3, .hidden = 72, .intermediate = 56, .bias = true};
      const CanonicalExperts experts = random_experts(recipe, rng);
      const auto x = random_values(static_cast<std::size_t>(9 * recipe.hidden), rng);
      const Routing routing = random_routing(9, 2, recipe.experts, rng);
      const double error = relative_error(run_experts(card, experts, activation, x, routing, 2, 2),
                                          run_experts(reference_for(key), experts, activation, x, routing, 2, 1));
      EXPECT_LE(error, bound(card, key)) << card.id << " " << to_string(key) << " " << to_string(fn);
    }
  }
}

TEST_P(Cards, ActOrderWithOwnAndSharedGroupIndex) {
  const KernelCard& card = *GetParam();
  if (!card.schemes[0].allow_asymmetric) GTEST_SKIP() << "unquantized weights have no groups to reorder";
  std::mt19937 rng(3);
  for (const bool shared : {false, true}) {
    for (const bool symmetric : {false, true}) {
      const QuantKey key{.element = Element::int4,
                         .scale = ScaleType::f16,
                         .granularity = Granularity::group(32),
                         .symmetric = symmetric};
      const ExpertsRecipe recipe{.key = key,
                                 .experts = 5,
                                 .hidden = 128,
                                 .intermediate = 96,
                                 .act_order = true,
                                 .shared_gate_up_order = shared};
      const CanonicalExperts experts = random_experts(recipe, rng);
      const auto x = random_values(static_cast<std::size_t>(11 * recipe.hidden), rng);
      const Routing routing = random_routing(11, 3, recipe.experts, rng);
      const double error = relative_error(run_experts(card, experts, {}, x, routing, 3, 2),
                                          run_experts(kCardRefWna16, experts, {}, x, routing, 3, 1));
      EXPECT_LE(error, bound(card, key));
    }
  }
}

TEST_P(Cards, RaggedRouting) {
  const KernelCard& card = *GetParam();
  std::mt19937 rng(4);
  const QuantKey key = claimed_keys(card).front();
  const ExpertsRecipe recipe{.key = key, .experts = 8, .hidden = 64, .intermediate = 64};
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
    const Routing routing{c.ids, std::vector<float>(c.ids.size(), 0.25F)};
    const auto out = run_experts(card, experts, {}, x, routing, c.top_k, 2);
    const auto ref = run_experts(reference_for(key), experts, {}, x, routing, c.top_k, 1);
    for (const float v : out) ASSERT_TRUE(std::isfinite(v)) << c.name;
    EXPECT_LE(relative_error(out, ref), bound(card, key)) << c.name;
  }
  const auto none = run_experts(card, experts, {}, random_values(128, rng), {{-1, -1}, {1.0F, 1.0F}}, 1, 2);
  for (const float v : none) EXPECT_EQ(v, 0.0F);
}

TEST_P(Cards, SameBitsForAnyThreadCount) {
  const KernelCard& card = *GetParam();
  std::mt19937 rng(5);
  const QuantKey key = claimed_keys(card).front();
  const ExpertsRecipe recipe{.key = key, .experts = 6, .hidden = 96, .intermediate = 160};
  const CanonicalExperts experts = random_experts(recipe, rng);
  const auto x = random_values(static_cast<std::size_t>(23 * recipe.hidden), rng);
  const Routing routing = random_routing(23, 3, recipe.experts, rng);
  const auto one = run_experts(card, experts, {}, x, routing, 3, 1);
  for (const int threads : {2, 3, 5}) EXPECT_EQ(one, run_experts(card, experts, {}, x, routing, 3, threads)) << threads;
}

// Extreme gate values must saturate, not turn into NaN.
TEST_P(Cards, ActivationsSurviveExtremes) {
  const KernelCard& card = *GetParam();
  std::mt19937 rng(6);
  const QuantKey key = claimed_keys(card).front();
  const CanonicalExperts experts = random_experts({.key = key, .experts = 2, .hidden = 64, .intermediate = 64}, rng);
  for (const ActivationFn fn : card.activations) {
    auto x = random_values(64, rng);
    for (auto& v : x) v *= 1e4F;
    const auto out = run_experts(card, experts, {.fn = fn}, x, {{0, 1}, {0.5F, 0.5F}}, 2, 1);
    for (const float v : out) EXPECT_TRUE(std::isfinite(v)) << to_string(fn);
  }
}

std::string card_name(const ::testing::TestParamInfo<const KernelCard*>& info) {
  std::string name(info.param->id);
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Panel, Cards, ::testing::ValuesIn(panel_cards()), card_name);

}  // namespace
}  // namespace moracle
