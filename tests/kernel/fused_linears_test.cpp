// Linears that read the same rows, fused into one run: each gets what it gets alone, whatever stands beside it.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/memory.h"
#include "kernels/kernel.h"
#include "machine/machine.h"
#include "support/random_experts.h"

namespace moracle {
namespace {

using test::MatrixRecipe;
using test::random_linear;

constexpr std::int64_t kCols = 320;

// Cards of this build that serve a scheme on this machine.
std::vector<const KernelCard*> cards_for(const Scheme& scheme) {
  std::vector<const KernelCard*> cards;
  const CpuFeatures features = probe_machine().cpu_features;
  for (const TableRow& row : (*table_for(scheme))->rows) {
    const bool built = row.card->kind == CardKind::native && row.card->device == DeviceKind::cpu &&
                       find_implementation(row.card->id) != nullptr;
    if (built && (row.card->cpu_features & ~features) == 0) cards.push_back(row.card);
  }
  return cards;
}

struct NamedRecipe {
  const char* name;
  MatrixRecipe recipe;
};

MatrixRecipe of(const QuantKey& key, std::optional<QuantKey> activation = {}) {
  return {.key = key, .activation = activation, .cols = kCols};
}

std::vector<NamedRecipe> recipes() {
  const QuantKey int4{.element = Element::int4, .scale = ScaleType::f16, .granularity = Granularity::group(128)};
  QuantKey with_zeros = int4;
  with_zeros.symmetric = false;
  const QuantKey int8{.element = Element::int8, .scale = ScaleType::f32, .granularity = Granularity::channel()};
  const QuantKey by_token{
      .element = Element::int8, .scale = ScaleType::f32, .granularity = Granularity::token(), .dynamic = true};
  MatrixRecipe ordered = of(int4);
  ordered.act_order = true;
  return {{"int4", of(int4)},
          {"int4 with zero points", of(with_zeros)},
          {"int4 in another order", ordered},
          {"int8 of both", of(int8, by_token)},
          {"bf16", of({.element = Element::bf16})}};
}

// Packed linears of different heights, and one of them with a bias.
class Packed {
 public:
  Packed(ThreadPool& pool, std::mt19937& rng) : pool_(pool), rng_(rng) {}

  void add(const KernelCard& card, MatrixRecipe recipe) {
    static constexpr std::int64_t kRows[] = {70, 33, 200, 1};
    recipe.rows = kRows[linears_.size() % std::size(kRows)];
    recipe.bias = linears_.size() % 2 == 1;
    auto packed = find_implementation(card.id)->pack_linear(random_linear(recipe, rng_), {.pool = pool_});
    ASSERT_TRUE(packed.ok()) << packed.error().message();
    linears_.push_back(std::move(*packed));
    rows_.push_back(recipe.rows);
  }

  void expect_the_same(std::int64_t tokens) {
    std::vector<float> x(static_cast<std::size_t>(tokens * kCols));
    for (float& value : x) value = std::normal_distribution<float>()(rng_);
    std::size_t most = 0;
    for (const auto& linear : linears_) most = std::max(most, linear->workspace_bytes(tokens, pool_.threads()));
    auto workspace = PageBuffer::allocate(most);
    Stream stream(pool_);
    const RunContext context{.stream = stream, .workspace = {workspace->data(), workspace->size()}};
    std::vector<std::vector<float>> alone;
    std::vector<std::vector<float>> fused;
    std::vector<LinearRun> runs;
    for (std::size_t i = 0; i < linears_.size(); ++i) {
      alone.emplace_back(static_cast<std::size_t>(tokens * rows_[i]), std::nanf(""));
      linears_[i]->run(context, tokens, x.data(), alone.back().data());
      fused.emplace_back(alone.back().size(), std::nanf(""));
      runs.push_back({.linear = linears_[i].get(), .y = fused.back().data()});
    }
    linears_.front()->run_fused(context, runs, tokens, x.data());
    for (std::size_t i = 0; i < runs.size(); ++i) EXPECT_EQ(fused[i], alone[i]) << "the linear at " << i;
  }

 private:
  ThreadPool& pool_;
  std::mt19937& rng_;
  std::vector<std::unique_ptr<PackedLinear>> linears_;
  std::vector<std::int64_t> rows_;
};

Scheme scheme_of(const MatrixRecipe& recipe) {
  return {.weight = recipe.key, .activation = recipe.activation};
}

TEST(FusedLinears, GiveWhatEachGivesAlone) {
  std::mt19937 rng(1);
  const auto all = recipes();
  for (const NamedRecipe& first : all) {
    for (const KernelCard* card : cards_for(scheme_of(first.recipe))) {
      for (const NamedRecipe& other : all) {
        for (const int threads : {1, 3}) {
          SCOPED_TRACE(std::string(card->id) + ": " + first.name + ", then " + other.name + ", " +
                       std::to_string(threads) + " threads");
          ThreadPool pool(threads);
          Packed packed(pool, rng);
          // Two that read alike, one that may not, and a last one that does again.
          packed.add(*card, first.recipe);
          packed.add(*card, first.recipe);
          packed.add(*cards_for(scheme_of(other.recipe)).front(), other.recipe);
          packed.add(*card, first.recipe);
          for (const std::int64_t tokens : {1, 5, 70}) packed.expect_the_same(tokens);
        }
      }
    }
  }
}

}  // namespace
}  // namespace moracle
