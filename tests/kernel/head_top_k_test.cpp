// The k largest outputs of a head: what a linear finds with its 8-bit copy is what run() has, to the last bit and row,
// for every row of a batch; draws follow the softmax.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "base/random/gumbel.h"
#include "base/thread_pool.h"
#include "kernels/kernel.h"
#include "scheme/codes.h"
#include "support/cpu_targets.h"
#include "support/random_experts.h"

namespace moracle {
namespace {

using Values = std::vector<float>;

// How the weights of a case are made: the i-th of a row.
struct Weights {
  const char* name;
  std::function<float(std::mt19937&, std::int64_t row, std::int64_t column)> value;
};

float normal(std::mt19937& rng) {
  return std::normal_distribution<float>()(rng);
}

const std::vector<Weights>& kinds_of_weights() {
  static const std::vector<Weights> kinds = {
      {"normal", [](auto& rng, auto, auto) { return 0.02F * normal(rng); }},
      {"rows of every size",
       [](auto& rng, auto row, auto) { return std::ldexp(normal(rng), static_cast<int>(row % 60) - 40); }},
      {"columns of every size",
       [](auto& rng, auto, auto col) { return std::ldexp(normal(rng), static_cast<int>(col % 40) - 30); }},
      {"outliers", [](auto& rng, auto, auto) { return normal(rng) * (rng() % 97 == 0 ? 300.0F : 0.01F); }},
      {"few distinct rows",
       [](auto&, auto row, auto col) { return std::sin(static_cast<float>(row % 3 * 1000 + col)); }},
      {"zeros", [](auto&, auto, auto) { return 0.0F; }},
      {"subnormal", [](auto& rng, auto, auto) { return 1e-39F * normal(rng); }},
      {"too large to bound", [](auto& rng, auto, auto) { return 1e30F * normal(rng); }},
  };
  return kinds;
}

CanonicalLinear linear_of(const Weights& weights, std::int64_t rows, std::int64_t cols, Element element,
                          unsigned seed = 1) {
  std::mt19937 rng(seed);
  MatrixPanel all;
  all.rows = rows;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t k = 0; k < cols; ++k) {
      const float value = weights.value(rng, r, k);
      all.values.push_back(element == Element::bf16 ? decode_bf16(encode_bf16(value)) : value);
    }
  }
  const MatrixSpec spec{.name = "head", .rows = rows, .cols = cols, .key = {.element = element}};
  return {.weight = std::make_shared<test::MemoryMatrix>(spec, all)};
}

// Activations of several kinds, each once.
std::vector<Values> activations(std::int64_t cols) {
  std::mt19937 rng(7);
  std::vector<Values> all;
  const auto add = [&](const std::function<float(std::int64_t)>& value) {
    Values x;
    for (std::int64_t k = 0; k < cols; ++k) x.push_back(value(k));
    all.push_back(std::move(x));
  };
  for (int i = 0; i < 4; ++i) add([&](auto) { return normal(rng); });
  add([&](auto) { return rng() % 2 == 0 ? 1.0F : -1.0F; });
  add([&](auto k) { return k == cols / 2 ? 1000.0F : 0.01F * normal(rng); });
  add([&](auto k) { return std::ldexp(normal(rng), -static_cast<int>(k % 100)); });
  add([&](auto) { return 1e-38F * normal(rng); });
  add([&](auto) { return 1e14F * normal(rng); });
  add([](auto) { return 0.0F; });
  return all;
}

// Of this machine's CPU kernels.
std::vector<const KernelCard*> dense_cards() {
  std::vector<const KernelCard*> cards;
  for (const test::CpuTarget& of : test::cpu_targets()) {
    if (!of.runs_here() || of.facts.numbers.accumulation.empty()) continue;
    const KernelImplementation* const kernel = find_implementation("cpu." + std::string(of.facts.name) + ".dense");
    if (kernel == nullptr) {
      ADD_FAILURE() << of.facts.name;
    } else {
      cards.push_back(kernel->card);
    }
  }
  return cards;
}

using Ids = std::vector<std::int64_t>;

// A packed head, and what it makes of rows.
class Head {
 public:
  Head(const KernelCard& card, const CanonicalLinear& linear, int threads = 2)
      : pool_(threads), rows_(linear.weight->spec().rows), cols_(linear.weight->spec().cols) {
    auto packed = find_implementation(card.id)->pack_linear(linear, {.pool = pool_, .head = true});
    EXPECT_TRUE(packed.ok());
    linear_ = std::move(*packed);
    workspace_ = std::move(*PageBuffer::allocate(linear_->workspace_bytes(kMaxTokens, threads)));
  }
  [[nodiscard]] const PackedLinear& operator*() const { return *linear_; }
  // [tokens][k] outputs that the copy finds, each with the value that run() has; empty: unknown.
  std::vector<Ids> top_k(const Values& x, std::int64_t k, const std::vector<std::uint64_t>& seeds = {},
                         double temperature = 1.0) {
    const std::int64_t tokens = std::ssize(x) / cols_;
    std::vector<RankedOutput> found(static_cast<std::size_t>(tokens * k));
    const TopKQuery query{.tokens = tokens,
                          .x = x.data(),
                          .k = k,
                          .seeds = seeds.empty() ? nullptr : seeds.data(),
                          .temperature = temperature};
    if (!linear_->top_k(context(), query, found)) return {};
    const Values y = run(x);
    std::vector<Ids> all(static_cast<std::size_t>(tokens));
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto t = static_cast<std::int64_t>(i) / k;
      EXPECT_EQ(found[i].value, y[static_cast<std::size_t>(t * rows_ + found[i].row)]);
      all[static_cast<std::size_t>(t)].push_back(found[i].row);
    }
    return all;
  }
  Values run(const Values& x) {
    const std::int64_t tokens = std::ssize(x) / cols_;
    Values y(static_cast<std::size_t>(tokens * rows_));
    linear_->run(context(), tokens, x.data(), y.data());
    return y;
  }
  // What top_k() is to find.
  std::vector<Ids> ranked(const Values& x, std::int64_t k, const std::vector<std::uint64_t>& seeds = {},
                          double temperature = 1.0) {
    const Values y = run(x);
    std::vector<Ids> all;
    for (std::int64_t t = 0; t < std::ssize(x) / cols_; ++t) {
      std::vector<double> keys;
      for (std::int64_t row = 0; row < rows_; ++row) {
        const auto value = static_cast<double>(y[static_cast<std::size_t>(t * rows_ + row)]);
        keys.push_back(seeds.empty() ? value
                                     : value / temperature +
                                           gumbel(seeds[static_cast<std::size_t>(t)], static_cast<std::uint64_t>(row)));
      }
      Ids rows(keys.size());
      std::iota(rows.begin(), rows.end(), 0);
      std::ranges::sort(rows, {},
                        [&](std::int64_t row) { return std::pair(-keys[static_cast<std::size_t>(row)], row); });
      rows.resize(static_cast<std::size_t>(k));
      all.push_back(rows);
    }
    return all;
  }

 private:
  static constexpr std::int64_t kMaxTokens = 80;
  RunContext context() { return {.stream = stream_, .workspace = {workspace_.data(), workspace_.size()}}; }

  ThreadPool pool_;
  Stream stream_{pool_};
  std::int64_t rows_;
  std::int64_t cols_;
  std::unique_ptr<PackedLinear> linear_;
  PageBuffer workspace_;
};

// Rows of activations one after the other.
Values batch_of(std::int64_t tokens, std::int64_t cols) {
  std::mt19937 rng(11);
  Values x;
  for (std::int64_t i = 0; i < tokens * cols; ++i) x.push_back(normal(rng));
  return x;
}

TEST(HeadTopK, FindsWhatRunHas) {
  ASSERT_FALSE(dense_cards().empty());
  for (const KernelCard* card : dense_cards()) {
    for (const Element element : {Element::bf16, Element::f32}) {
      for (const Weights& weights : kinds_of_weights()) {
        for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{129, 40}, {3000, 320}}) {
          SCOPED_TRACE(std::string(card->id) + ", " + weights.name + ", " + std::to_string(rows) + " rows");
          Head head(*card, linear_of(weights, rows, cols, element));
          ASSERT_TRUE((*head).has_top_k());
          for (const Values& x : activations(cols)) {
            for (const std::int64_t k : {1, 20}) {
              const auto found = head.top_k(x, k);
              if (found.empty()) continue;  // run() is asked then
              ASSERT_EQ(found, head.ranked(x, k));
            }
          }
        }
      }
    }
  }
}

// Else the test above could pass with nothing found.
TEST(HeadTopK, KnowsWhatIsUsual) {
  for (const KernelCard* card : dense_cards()) {
    Head head(*card, linear_of(kinds_of_weights().front(), 3000, 320, Element::bf16));
    for (std::size_t i = 0; i < 7; ++i)
      EXPECT_EQ(head.top_k(activations(320)[i], 20).size(), 1U) << card->id << " " << i;
  }
}

TEST(HeadTopK, ServesEveryRowOfABatch) {
  for (const KernelCard* card : dense_cards()) {
    Head head(*card, linear_of(kinds_of_weights().front(), 9000, 96, Element::bf16));
    for (const std::int64_t tokens : {2, 5, 33, 70}) {
      const Values x = batch_of(tokens, 96);
      const auto found = head.top_k(x, 1);
      ASSERT_EQ(std::ssize(found), tokens) << card->id;
      EXPECT_EQ(found, head.ranked(x, 1)) << card->id << " " << tokens;
    }
  }
}

TEST(HeadTopK, LeavesLargeQueriesToRun) {
  for (const KernelCard* card : dense_cards()) {
    Head head(*card, linear_of(kinds_of_weights().front(), 640, 96, Element::bf16));
    EXPECT_EQ(head.top_k(batch_of(1, 96), 5).size(), 1U);
    EXPECT_TRUE(head.top_k(batch_of(1, 96), 6).empty()) << "more than a quarter of 20 panels";
    EXPECT_TRUE(head.top_k(batch_of(6, 96), 1).empty());
  }
}

TEST(HeadTopK, DoesNotGuess) {
  for (const KernelCard* card : dense_cards()) {
    Head head(*card, linear_of(kinds_of_weights().front(), 256, 320, Element::bf16));
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -1e30F}) {
      for (const std::size_t place : {std::size_t{0}, std::size_t{31}, std::size_t{319}}) {
        Values x(320, 1.0F);
        x[place] = bad;
        EXPECT_TRUE(head.top_k(x, 1).empty()) << card->id << " " << bad;
      }
    }
    Head large(*card, linear_of(kinds_of_weights().back(), 256, 320, Element::bf16));
    EXPECT_TRUE(large.top_k(Values(320, 1.0F), 1).empty()) << card->id;
  }
}

TEST(HeadTopK, AnyNumberOfThreadsFindsTheSame) {
  const CanonicalLinear linear = linear_of(kinds_of_weights().front(), 5000, 128, Element::bf16);
  for (const KernelCard* card : dense_cards()) {
    Head one(*card, linear, 1);
    Head three(*card, linear, 3);
    for (const Values& x : activations(128)) EXPECT_EQ(one.top_k(x, 20), three.top_k(x, 20)) << card->id;
  }
}

TEST(HeadTopK, IsForUnquantizedMatricesWithoutABias) {
  ThreadPool pool(1);
  for (const KernelCard* card : dense_cards()) {
    CanonicalLinear linear = linear_of(kinds_of_weights().front(), 64, 128, Element::bf16);
    const auto kernel = find_implementation(card->id);
    const auto without = kernel->pack_linear(linear, {.pool = pool});
    const auto with = kernel->pack_linear(linear, {.pool = pool, .head = true});
    const auto laid_out = kernel->pack_linear(linear, {.pool = pool, .layout_only = true, .head = true});
    ASSERT_TRUE(without.ok() && with.ok() && laid_out.ok());
    EXPECT_FALSE((*without)->has_top_k());
    // Codes, a scale and two norms a row.
    EXPECT_EQ((*with)->bytes() - (*without)->bytes(), 64U * (128 + 4 + 8));
    EXPECT_EQ((*laid_out)->bytes(), (*with)->bytes());
    EXPECT_EQ((*laid_out)->workspace_bytes(7, 2), (*with)->workspace_bytes(7, 2));
    linear.bias.assign(64, 1.0F);
    const auto biased = kernel->pack_linear(linear, {.pool = pool, .head = true});
    ASSERT_TRUE(biased.ok());
    EXPECT_FALSE((*biased)->has_top_k());
    Stream stream(pool);
    EXPECT_FALSE((*biased)->top_k({.stream = stream, .workspace = {}}, {}, {}));
  }
}

TEST(HeadTopK, DrawsRankAsNoiseSays) {
  for (const KernelCard* card : dense_cards()) {
    Head head(*card, linear_of(kinds_of_weights().front(), 5000, 96, Element::bf16));
    const Values x = batch_of(6, 96);
    for (const double temperature : {0.05, 1.0, 30.0}) {
      const std::vector<std::uint64_t> seeds{1, 2, 3, 4, 5, 1ULL << 63U};
      EXPECT_EQ(head.top_k(x, 3, seeds, temperature), head.ranked(x, 3, seeds, temperature)) << temperature;
    }
  }
}

// 30,000 draws against the softmax of what run() gives: the statistic's distribution has mean = degrees of freedom and
// variance twice that; five deviations are allowed.
TEST(HeadTopK, DrawsFollowTheSoftmax) {
  constexpr std::int64_t kRows = 2048;
  constexpr std::int64_t kTokens = 16;
  constexpr double kTemperature = 0.7;
  const KernelCard& card = *dense_cards().front();
  Head head(card,
            linear_of({"wide", [](auto& rng, auto, auto) { return 0.3F * normal(rng); }}, kRows, 64, Element::bf16));
  Values x = batch_of(1, 64);
  const Values y = head.run(x);
  for (std::int64_t t = 1; t < kTokens; ++t) x.insert(x.end(), x.begin(), x.begin() + 64);
  std::vector<double> expected(kRows);
  double total = 0;
  const float most = *std::max_element(y.begin(), y.end());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] = std::exp(static_cast<double>(y[i] - most) / kTemperature);
    total += expected[i];
  }
  constexpr std::int64_t kDraws = 30000 / kTokens * kTokens;
  std::vector<double> counts(kRows);
  std::mt19937_64 rng(3);
  for (std::int64_t draw = 0; draw < kDraws; draw += kTokens) {
    std::vector<std::uint64_t> seeds(kTokens);
    for (auto& seed : seeds) seed = rng();
    const auto found = head.top_k(x, 1, seeds, kTemperature);
    ASSERT_EQ(std::ssize(found), kTokens);
    for (const Ids& ids : found) counts[static_cast<std::size_t>(ids.front())] += 1;
  }
  double statistic = 0;
  int bins = 0;
  double rare = 0;  // outputs that are expected less than ten times, together
  double rare_expected = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double wanted = expected[i] / total * static_cast<double>(kDraws);
    if (wanted < 10) {
      rare += counts[i];
      rare_expected += wanted;
      continue;
    }
    statistic += (counts[i] - wanted) * (counts[i] - wanted) / wanted;
    ++bins;
  }
  statistic += (rare - rare_expected) * (rare - rare_expected) / rare_expected;
  ASSERT_GE(bins, 20);
  EXPECT_LE(statistic, bins + 5 * std::sqrt(2.0 * bins)) << bins << " bins";
}

}  // namespace
}  // namespace moracle
