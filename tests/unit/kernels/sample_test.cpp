#include "kernels/args/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <span>

#include "base/random/random.h"
#include "kernels/kernel.h"
#include "kernels/ops.h"

namespace moracle {
namespace {

void run(const SampleArgs& args, int threads = 1) {
  static ThreadPool alone(1);
  static ThreadPool several(3);
  ThreadPool& pool = threads == 1 ? alone : several;
  Stream stream(pool);
  std::vector<std::byte> workspace(ref_ops().workspace(args, pool.threads()));
  ref_ops().sample({.stream = stream, .workspace = workspace}, args);
}

// The draws of one request, of a single row each.
class Sampler {
 public:
  explicit Sampler(const SampleParams& params) : params_(params), random_(params.seed) {}

  // -1: none can be chosen.
  std::int32_t sample(std::span<const float> logits) {
    return run_one({.vocab = static_cast<std::int32_t>(logits.size()), .logits = logits.data()});
  }
  std::int32_t sample(std::span<const TokenLogit> top) {
    const std::int32_t start[] = {0, static_cast<std::int32_t>(top.size())};
    return run_one(
        {.vocab = start[1], .candidates = top.data(), .most_candidates = start[1], .candidates_start = start});
  }

 private:
  std::int32_t run_one(SampleArgs args) {
    params_.seed = random_.next();
    std::int32_t id = -1;
    args.rows = 1;
    args.params = &params_;
    args.ids = &id;
    run(args);
    return id;
  }

  SampleParams params_;
  Random random_;
};

std::map<std::int32_t, int> draw(const SampleParams& params, const std::vector<float>& logits, int times) {
  Sampler sampler(params);
  std::map<std::int32_t, int> counts;
  for (int i = 0; i < times; ++i) ++counts[sampler.sample(logits)];
  EXPECT_EQ(counts.count(-1), 0U);
  return counts;
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowestOfTies) {
  Sampler sampler({});
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 5, 5, 2}), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{-INFINITY, -3, -2}), 2);
}

TEST(Sampler, ChoosesNothingWhereNumbersAreNone) {
  for (const SampleParams& params :
       {SampleParams{}, SampleParams{.temperature = 1.0, .top_k = 2}, SampleParams{.temperature = 1.0, .top_p = 0.9}}) {
    Sampler sampler(params);
    for (const float bad : {std::nanf(""), INFINITY}) EXPECT_EQ(sampler.sample(std::vector<float>{1, bad, 2}), -1);
  }
  for (const double temperature : {0.0, 1.0})
    EXPECT_EQ(Sampler({.temperature = temperature}).sample(std::vector<float>{-INFINITY, -INFINITY}), -1);
}

// The top k alone give the choices that all logits give, ties at the last place included.
TEST(Sampler, ChoosesAlikeFromTheTopK) {
  std::vector<float> logits;
  for (int i = 0; i < 300; ++i) logits.push_back(static_cast<float>(i * 37 % 50) / 10.0F);
  std::vector<TokenLogit> ordered;
  for (const float logit : logits) ordered.push_back({logit, static_cast<std::int32_t>(ordered.size())});
  std::sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.before(b); });
  for (const SampleParams& params : {SampleParams{}, SampleParams{.temperature = 0.7, .top_k = 20},
                                     SampleParams{.temperature = 2.0, .top_k = 7, .top_p = 0.8, .min_p = 0.1}}) {
    Sampler all(params);
    Sampler few(params);
    const auto deciding = static_cast<std::size_t>(std::max<std::int64_t>(1, params.top_k));
    for (int i = 0; i < 200; ++i)
      ASSERT_EQ(few.sample(std::span(ordered).first(deciding)), all.sample(logits)) << deciding << " " << i;
  }
}

// So do the 64 highest where min_p drops the last of them.
TEST(Sampler, ChoosesAlikeFromWhatMinPKeeps) {
  std::vector<float> logits;
  for (int i = 0; i < 300; ++i) logits.push_back(static_cast<float>(i * 37 % 50) / 10.0F);
  std::vector<TokenLogit> ordered;
  for (const float logit : logits) ordered.push_back({logit, static_cast<std::int32_t>(ordered.size())});
  std::sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.before(b); });
  const auto few = std::span(ordered).first(kMaxHeadTopK);
  for (const std::int64_t top_k : {0, 200}) {
    const SampleParams options{.temperature = 0.3, .top_k = top_k, .min_p = 0.1, .seed = 3};
    ASSERT_LT(std::exp((few.back().logit - few.front().logit) / 0.3), options.min_p);
    Sampler all(options);
    Sampler some(options);
    for (int i = 0; i < 200; ++i) ASSERT_EQ(some.sample(few), all.sample(logits)) << i;
  }
}

// Logits are looked through many at a time: no place may be missed, at the ends and beyond the last whole run neither.
TEST(Sampler, SeesEveryPlaceOfALongRow) {
  Sampler sampler({});
  std::vector<float> logits(200, -5.0F);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    logits[i] = 3.0F;
    EXPECT_EQ(sampler.sample(logits), static_cast<std::int32_t>(i));
    for (const float bad : {std::nanf(""), INFINITY}) {
      logits[i] = bad;
      EXPECT_EQ(sampler.sample(logits), -1) << i;
    }
    logits[i] = -5.0F;
  }
  logits[70] = logits[199] = 1.0F;
  EXPECT_EQ(sampler.sample(logits), 70);
}

// 20,000 draws of known probabilities: the standard deviation of a share is at most sqrt(1/4/20000) = 0.0035, five of
// them are 0.018.
TEST(Sampler, FollowsTheSoftmax) {
  const std::vector<float> logits = {0.0F, std::log(2.0F), std::log(5.0F), -INFINITY};
  const auto counts = draw({.temperature = 1.0, .seed = 7}, logits, 20000);
  EXPECT_NEAR(counts.at(0) / 20000.0, 1.0 / 8, 0.018);
  EXPECT_NEAR(counts.at(1) / 20000.0, 2.0 / 8, 0.018);
  EXPECT_NEAR(counts.at(2) / 20000.0, 5.0 / 8, 0.018);
  EXPECT_EQ(counts.count(3), 0U);
}

TEST(Sampler, TemperatureSharpensAndFlattens) {
  const std::vector<float> logits = {0.0F, std::log(4.0F)};
  EXPECT_NEAR(draw({.temperature = 0.5, .seed = 1}, logits, 20000)[1] / 20000.0, 16.0 / 17, 0.018);
  EXPECT_NEAR(draw({.temperature = 2.0, .seed = 1}, logits, 20000)[1] / 20000.0, 2.0 / 3, 0.018);
}

TEST(Sampler, TopKKeepsTheLikeliestWithTiesToTheLowestId) {
  const std::vector<float> logits = {1, 3, 2, 3, 0};
  EXPECT_EQ(draw({.temperature = 1.0, .top_k = 1}, logits, 200).count(1), 1U);
  EXPECT_EQ(draw({.temperature = 1.0, .top_k = 1}, logits, 200).size(), 1U);
  const auto three = draw({.temperature = 5.0, .top_k = 3}, logits, 2000);
  EXPECT_EQ(three.size(), 3U);
  EXPECT_TRUE(three.count(1) == 1 && three.count(2) == 1 && three.count(3) == 1);
  EXPECT_EQ(draw({.temperature = 5.0, .top_k = 100}, logits, 5000).size(), 5U);
}

TEST(Sampler, TopPKeepsTheShortestSufficientPrefix) {
  // Probabilities 0.1, 0.2, 0.3, 0.4.
  const std::vector<float> logits = {std::log(1.0F), std::log(2.0F), std::log(3.0F), std::log(4.0F)};
  EXPECT_EQ(draw({.temperature = 1.0, .top_p = 0.39}, logits, 500).size(), 1U);
  EXPECT_EQ(draw({.temperature = 1.0, .top_p = 0.41}, logits, 2000).size(), 2U);
  EXPECT_EQ(draw({.temperature = 1.0, .top_p = 0.95}, logits, 5000).size(), 4U);
  EXPECT_EQ(draw({.temperature = 1.0, .top_p = 1e-9}, logits, 500).size(), 1U);
}

TEST(Sampler, TopPSortsOnlyWhatItNeedsButAsIfAll) {
  // 1000 equally likely tokens: half the mass is the 500 lowest ids, far beyond the first sorted head.
  const auto counts = draw({.temperature = 1.0, .top_p = 0.4995}, std::vector<float>(1000, 0.5F), 20000);
  EXPECT_LT(counts.rbegin()->first, 500);
  EXPECT_GT(counts.size(), 490U);
}

TEST(Sampler, MinPDropsTheUnlikely) {
  const std::vector<float> logits = {std::log(1.0F), std::log(2.0F), std::log(3.0F), std::log(10.0F)};
  EXPECT_EQ(draw({.temperature = 1.0, .min_p = 0.25}, logits, 3000).size(), 2U);
  EXPECT_EQ(draw({.temperature = 1.0, .min_p = 1.0}, logits, 300).size(), 1U);
  EXPECT_EQ(draw({.temperature = 1.0, .min_p = 0.0}, logits, 3000).size(), 4U);
}

TEST(Sampler, TheSameSeedGivesTheSameTokensAndAnotherDoesNot) {
  const std::vector<float> logits(50, 1.0F);
  const auto sequence = [&](std::uint64_t seed) {
    Sampler sampler({.temperature = 1.0, .seed = seed});
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 20; ++i) ids.push_back(sampler.sample(logits));
    return ids;
  };
  EXPECT_EQ(sequence(3), sequence(3));
  EXPECT_NE(sequence(3), sequence(4));
}

// The number that a row of logits becomes, told by the least bias at which the token beats another of known logit.
std::vector<float> penalized(const SampleParams& params, const std::vector<TokenCount>& counts,
                             const std::vector<float>& logits) {
  std::vector<float> found;
  const std::int32_t starts[] = {0, static_cast<std::int32_t>(counts.size())};
  for (std::size_t id = 0; id < logits.size(); ++id) {
    // A rival behind all others, of every number that may be the answer.
    for (const float rival : {-6.0F, -3.0F, -1.5F, 2.0F, 2.5F, 3.0F, 3.5F, 4.0F, 5.0F, 6.0F, 8.0F}) {
      std::vector<float> row(logits.size() + 1, -INFINITY);
      row[id] = logits[id];
      row.back() = rival;
      std::int32_t chosen = -1;
      std::vector<float> above = row;
      above.back() = std::nextafter(rival, INFINITY);
      SampleArgs args{.rows = 1,
                      .vocab = static_cast<std::int32_t>(row.size()),
                      .params = &params,
                      .logits = row.data(),
                      .counts = counts.data(),
                      .counts_start = starts,
                      .ids = &chosen};
      run(args);
      const bool at_least = chosen == static_cast<std::int32_t>(id);
      args.logits = above.data();
      run(args);
      if (at_least && chosen != static_cast<std::int32_t>(id)) found.push_back(rival);
    }
  }
  return found;
}

TEST(Sample, RepetitionCountsPromptAndAnswerOnce) {
  EXPECT_EQ(penalized({.repetition_penalty = 2.0}, {{0, 0}, {1, 0}, {2, 2}}, {4, -3, 5, 6}),
            (std::vector<float>{2, -6, 2.5F, 6}));
  EXPECT_EQ(penalized({.repetition_penalty = 0.5}, {{0, 0}, {1, 0}}, {4, -3, 5}), (std::vector<float>{8, -1.5F, 5}));
}

TEST(Sample, PresenceAndFrequencyCountTheAnswer) {
  const std::vector<TokenCount> counts = {{0, 0}, {1, 2}, {2, 1}};
  EXPECT_EQ(penalized({.presence_penalty = 1.5}, counts, {4, 4, 4, 4}), (std::vector<float>{4, 2.5F, 2.5F, 4}));
  EXPECT_EQ(penalized({.frequency_penalty = 0.5}, counts, {4, 4, 4, 4}), (std::vector<float>{4, 3, 3.5F, 4}));
  EXPECT_EQ(penalized({.repetition_penalty = 2.0, .presence_penalty = -1.0, .frequency_penalty = 0.25},
                      {{3, 0}, {1, 2}}, {4, 4, 4, 4}),
            (std::vector<float>{4, 2.5F, 4, 2}))
      << "the repetition penalty comes first";
}

// The penalty would lift it to infinity, which nothing may be chosen beside.
TEST(Sample, PenaltiesKeepFiniteLogitsFinite) {
  const std::vector<float> logits = {1e20F, -INFINITY, 3};
  const SampleParams params{.repetition_penalty = 1e-30};
  const std::vector<TokenCount> counts = {{-1, 0}, {0, 0}, {1, 0}, {9, 0}};
  const std::int32_t starts[] = {0, 4};
  std::int32_t id = -1;
  run({.rows = 1,
       .vocab = 3,
       .params = &params,
       .logits = logits.data(),
       .counts = counts.data(),
       .counts_start = starts,
       .ids = &id});
  EXPECT_EQ(id, 0);
}

// Settings of every path through the operation.
const std::vector<SampleParams>& settings() {
  static const std::vector<SampleParams> all = {
      {},
      {.temperature = 1.0},
      {.temperature = 0.7, .top_k = 5},
      {.temperature = 1.5, .top_k = 1000, .top_p = 0.7},
      {.temperature = 1.0, .min_p = 0.2},
      {.temperature = 0.9, .top_k = 20, .top_p = 0.9, .min_p = 0.01, .repetition_penalty = 1.3},
      {.repetition_penalty = 0.5, .presence_penalty = -2.0, .frequency_penalty = 2.0},
      {.temperature = 2.0, .frequency_penalty = -1.0},
  };
  return all;
}

std::vector<float> random_logits(std::mt19937& random, std::size_t size) {
  std::normal_distribution<float> normal(0.0F, 3.0F);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

// A batch of rows of all settings, with what each may have.
struct Batch {
  explicit Batch(std::int32_t rows, std::int32_t vocab) : args{.rows = rows, .vocab = vocab} {
    std::mt19937 random(7);
    logits = random_logits(random, static_cast<std::size_t>(rows * vocab));
    mask.assign(static_cast<std::size_t>(rows * mask_words(vocab)), 0);
    for (std::uint32_t& word : mask) word = static_cast<std::uint32_t>(random());
    for (std::int32_t row = 0; row < rows; ++row) {
      params.push_back(settings()[static_cast<std::size_t>(row) % settings().size()]);
      params.back().seed = random();
      for (std::int32_t i = 0; i < row % 4; ++i) {
        counts.push_back({.id = static_cast<std::int32_t>(i * 7 % vocab), .answered = i});
        bias.push_back({.id = static_cast<std::int32_t>(i * 11 % vocab), .bias = static_cast<float>(i) - 1.0F});
      }
      counts_start.push_back(static_cast<std::int32_t>(counts.size()));
      bias_start.push_back(static_cast<std::int32_t>(bias.size()));
      tops.push_back(row % 5 - 1);
      given.push_back(row % 6 == 5 ? row % vocab : -1);
    }
    ids.resize(static_cast<std::size_t>(rows));
    logprobs.assign(ids.size(), 1.0);
    top.resize(ids.size() * 4);
    args.params = params.data();
    args.logits = logits.data();
    args.counts = counts.data();
    args.counts_start = counts_start.data();
    args.bias = bias.data();
    args.bias_start = bias_start.data();
    args.mask = mask.data();
    args.given = given.data();
    args.tops = tops.data();
    args.most_tops = 4;
    args.ids = ids.data();
    args.logprobs = logprobs.data();
    args.top = top.data();
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  ~Batch() = default;

  [[nodiscard]] bool allows(std::int32_t row, std::int32_t id) const {
    const std::uint32_t* const words = mask.data() + row * mask_words(args.vocab);
    return (words[id / 32] >> static_cast<unsigned>(id % 32) & 1U) != 0;
  }

  std::vector<float> logits;
  std::vector<std::uint32_t> mask;
  std::vector<SampleParams> params;
  std::vector<TokenCount> counts;
  std::vector<LogitBias> bias;
  std::vector<std::int32_t> counts_start{0}, bias_start{0}, tops, given, ids;
  std::vector<double> logprobs;
  std::vector<TokenLogprob> top;
  SampleArgs args;
};

// Whatever rows stand beside it, and however many threads there are.
TEST(Sample, ARowDependsOnItselfAlone) {
  constexpr std::int32_t kRows = 40;
  Batch whole(kRows, 77);
  run(whole.args, 3);
  for (std::int32_t row = 0; row < kRows; ++row) {
    SCOPED_TRACE(row);
    const Batch same(kRows, 77);
    SampleArgs one = same.args;
    one.rows = 1;
    one.params += row;
    one.logit_row = &row;
    one.counts_start += row;
    one.bias_start += row;
    one.mask += row * mask_words(77);
    one.given += row;
    one.tops += row;
    run(one);
    EXPECT_EQ(same.ids[0], whole.ids[static_cast<std::size_t>(row)]);
    if (whole.tops[static_cast<std::size_t>(row)] < 0) {
      EXPECT_EQ(same.logprobs[0], 1.0) << "nobody wants it";
      continue;
    }
    EXPECT_EQ(same.logprobs[0], whole.logprobs[static_cast<std::size_t>(row)]);
    for (std::int32_t i = 0; i < whole.tops[static_cast<std::size_t>(row)]; ++i) {
      const TokenLogprob& other = whole.top[static_cast<std::size_t>(row * 4 + i)];
      EXPECT_EQ(same.top[static_cast<std::size_t>(i)].id, other.id);
      EXPECT_EQ(same.top[static_cast<std::size_t>(i)].logprob, other.logprob);
    }
  }
}

TEST(Sample, MaskedTokensNeverComeOut) {
  for (unsigned round = 0; round < 200; ++round) {
    Batch batch(16, 45);
    for (SampleParams& params : batch.params) params.seed += round * 77;
    run(batch.args);
    for (std::int32_t row = 0; row < 16; ++row) {
      const std::int32_t id = batch.ids[static_cast<std::size_t>(row)];
      if (batch.given[static_cast<std::size_t>(row)] >= 0) {
        EXPECT_EQ(id, batch.given[static_cast<std::size_t>(row)]) << "it is scored, whatever the mask says";
      } else {
        ASSERT_GE(id, 0);
        EXPECT_TRUE(batch.allows(row, id)) << row << " " << id;
      }
    }
  }
}

TEST(Sample, AMaskThatLeavesOneTokenGivesItUnderEverySetting) {
  for (const std::int32_t only : {0, 31, 32, 44}) {
    Batch batch(16, 45);
    std::fill(batch.mask.begin(), batch.mask.end(), 0);
    std::fill(batch.given.begin(), batch.given.end(), -1);
    for (std::int32_t row = 0; row < 16; ++row)
      batch.mask[static_cast<std::size_t>(row * mask_words(45) + only / 32)] = std::uint32_t{1} << (only % 32);
    run(batch.args);
    for (const std::int32_t id : batch.ids) EXPECT_EQ(id, only);
  }
  Batch none(16, 45);
  std::fill(none.mask.begin(), none.mask.end(), 0);
  std::fill(none.given.begin(), none.given.end(), -1);
  run(none.args);
  for (const std::int32_t id : none.ids) EXPECT_EQ(id, -1);
}

TEST(Sample, ABiasIsAddedToItsRowAlone) {
  const std::vector<float> logits = {1, 2, 3, 1, 2, 3};
  const std::vector<SampleParams> params(2, SampleParams{.repetition_penalty = 2.0});
  const std::vector<LogitBias> bias = {{.id = 0, .bias = 1.0F}};
  const std::vector<TokenCount> counts = {{.id = 0, .answered = 0}, {.id = 2, .answered = 0}, {.id = 2, .answered = 0}};
  const std::vector<std::int32_t> bias_start = {0, 1, 1};
  const std::vector<std::int32_t> counts_start = {0, 2, 3};
  std::vector<std::int32_t> ids(2);
  SampleArgs args{.rows = 2,
                  .vocab = 3,
                  .params = params.data(),
                  .logits = logits.data(),
                  .bias = bias.data(),
                  .bias_start = bias_start.data(),
                  .ids = ids.data()};
  run(args);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{2, 2}));
  args.counts = counts.data();
  args.counts_start = counts_start.data();
  run(args);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{1, 1})) << "1 / 2 + 1 and 3 / 2 are below 2";
  const std::vector<LogitBias> more = {{.id = 0, .bias = 1.75F}};
  args.bias = more.data();
  run(args);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{0, 1})) << "the bias comes behind the penalty";
}

// By the definition, whatever changes the logits that the token is chosen from.
TEST(Sample, LogprobsAreOfRawLogits) {
  Batch batch(32, 50);
  run(batch.args);
  for (std::int32_t row = 0; row < 32; ++row) {
    const auto r = static_cast<std::size_t>(row);
    if (batch.tops[r] < 0) continue;
    const auto logits = std::span(batch.logits).subspan(r * 50, 50);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    const auto expected = [&](std::int32_t id) {
      return static_cast<double>(logits[static_cast<std::size_t>(id)]) - std::log(sum);
    };
    EXPECT_NEAR(batch.logprobs[r], expected(batch.ids[r]), 1e-12);
    std::vector<TokenLogit> ordered;
    for (const float logit : logits) ordered.push_back({logit, static_cast<std::int32_t>(ordered.size())});
    std::sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.before(b); });
    for (std::size_t i = 0; i < static_cast<std::size_t>(batch.tops[r]); ++i) {
      EXPECT_EQ(batch.top[r * 4 + i].id, ordered[i].id);
      EXPECT_NEAR(batch.top[r * 4 + i].logprob, expected(ordered[i].id), 1e-12);
    }
  }
}

// Rows of both kinds in one call.
TEST(Sample, CandidatesStandBesideRowsOfLogits) {
  const std::vector<float> logits = {1, 5, 2, 0};
  const std::vector<TokenLogit> candidates = {{.logit = 9, .id = 3}, {.logit = 8, .id = 1}};
  const std::vector<std::int32_t> start = {0, 0, 2, 2};
  const std::vector<std::int32_t> row_of(3, 0);
  const std::vector<SampleParams> params(3);
  std::vector<std::int32_t> ids(3);
  run({.rows = 3,
       .vocab = 4,
       .params = params.data(),
       .logits = logits.data(),
       .logit_row = row_of.data(),
       .candidates = candidates.data(),
       .most_candidates = 2,
       .candidates_start = start.data(),
       .ids = ids.data()});
  EXPECT_EQ(ids, (std::vector<std::int32_t>{1, 3, 1}));
}

}  // namespace
}  // namespace moracle
