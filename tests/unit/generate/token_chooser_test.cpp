#include "generate/token_chooser.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>

#include "generate/batch/sample_batch.h"
#include "kernels/kernel.h"

namespace moracle {
namespace {

TEST(TokenChooser, FewLogitsDecideWhereNoneBehindThemCan) {
  EXPECT_EQ(deciding_logits({}), 1);
  EXPECT_EQ(deciding_logits({.temperature = 0.7, .top_k = 20}), 20);
  EXPECT_EQ(deciding_logits({.temperature = 0.7, .top_k = kMaxHeadTopK + 1}), 0);
  EXPECT_EQ(deciding_logits({.temperature = 1.0, .top_p = 0.9}), 0);
  EXPECT_EQ(deciding_logits({.temperature = 1.0, .min_p = 0.1}), 0);
  EXPECT_EQ(deciding_logits({.repetition_penalty = 1.1}), 0);
  EXPECT_EQ(deciding_logits({.temperature = 1.0}), 1) << "a draw from all is made with noise";
  EXPECT_TRUE(SamplingOptions{.temperature = 1.0}.draws_from_all());
}

TEST(TokenChooser, MinPDecidesWhereNothingElseNeedsAll) {
  EXPECT_TRUE(min_p_decides({.temperature = 0.3, .min_p = 0.1}));
  EXPECT_TRUE(min_p_decides({.temperature = 0.3, .top_k = 200, .min_p = 0.1}));
  EXPECT_FALSE(min_p_decides({.temperature = 1.0}));
  EXPECT_FALSE(min_p_decides({.min_p = 0.1}));
  EXPECT_FALSE(min_p_decides({.temperature = 1.0, .top_k = 64, .min_p = 0.1})) << "the 64 decide alone";
  EXPECT_FALSE(min_p_decides({.temperature = 1.0, .top_p = 0.9, .min_p = 0.1})) << "top_p needs the mass of all";
  EXPECT_FALSE(min_p_decides({.temperature = 1.0, .min_p = 0.1, .repetition_penalty = 1.1}));
}

TEST(TokenChooser, CountsThePromptOnceAndTheAnswerByTimes) {
  Request request{.prompt = {5, 3, 5}, .sampling = {.presence_penalty = 1.0}};
  TokenChooser chooser(request);
  chooser.take(4);
  chooser.take(5);
  chooser.take(4);
  const auto counts = chooser.counts();
  ASSERT_EQ(counts.size(), 3U);
  EXPECT_EQ(counts[0].id, 3);
  EXPECT_EQ(counts[0].answered, 0);
  EXPECT_EQ(counts[1].id, 4);
  EXPECT_EQ(counts[1].answered, 2);
  EXPECT_EQ(counts[2].id, 5);
  EXPECT_EQ(counts[2].answered, 1);
  request.sampling = {};
  EXPECT_TRUE(TokenChooser(request).counts().empty());
}

// The n-th draw has the n-th number of the request's seed.
TEST(TokenChooser, EachDrawHasItsOwnSeed) {
  TokenChooser chooser({.prompt = {1}, .sampling = {.temperature = 1.0, .seed = 9}});
  Random random(9);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(chooser.params().seed, random.next());
    EXPECT_EQ(chooser.seed(), chooser.params().seed);
    chooser.take(1);
  }
}

TEST(SampleBatch, BansEndTokensUntilTheAnswerIsLongEnough) {
  const std::vector<float> logits = {0, 9, 8, 1};
  TokenChooser held({.prompt = {0}, .min_tokens = 1, .end_ids = {1}, .stop_ids = {2}});
  TokenChooser free({.prompt = {0}, .end_ids = {1}});
  ThreadPool pool(1);
  SampleBatch batch;
  const auto ids = [&] {
    batch.begin(4);
    batch.choose(held, BatchSamples::Row{});
    batch.choose(free, BatchSamples::Row{});
    batch.score(2, {}, 1);
    batch.run(logits.data(), ref_ops(), pool);
    return std::vector<std::int32_t>{batch.id(0), batch.id(1)};
  };
  EXPECT_EQ(held.wanted(), 0) << "all logits are needed";
  EXPECT_EQ(ids(), (std::vector<std::int32_t>{3, 1}));
  EXPECT_FALSE(batch.logprob(0).has_value());
  EXPECT_TRUE(batch.logprob(2).has_value());
  ASSERT_EQ(batch.top(2).size(), 1U);
  EXPECT_EQ(batch.top(2)[0].id, 1);
  held.take(3);
  EXPECT_FALSE(held.ended());
  EXPECT_EQ(held.wanted(), 1);
  EXPECT_EQ(ids(), (std::vector<std::int32_t>{1, 1}));
  held.take(1);
  EXPECT_TRUE(held.ended());
}

// "7 7", then the end.
class TwoSevens final : public Constraint, public ConstraintSource {
 public:
  explicit TwoSevens(std::int32_t end = -1) : end_(end) {}
  [[nodiscard]] std::unique_ptr<Constraint> start(std::span<const std::int32_t> ends) const override {
    return std::make_unique<TwoSevens>(ends.front());
  }
  [[nodiscard]] bool allows_all() const override { return false; }
  [[nodiscard]] bool must_end() const override { return tokens_ == 2; }
  void narrow(std::span<std::uint32_t> mask) const override { mask[0] &= 1U << (must_end() ? end_ : 7); }
  void advance(std::int32_t /*id*/) override { ++tokens_; }

 private:
  std::int32_t end_;
  int tokens_ = 0;
};

TEST(TokenChooser, ACompleteOutputEndsHoweverShortItIs) {
  const Request request{
      .prompt = {1}, .max_tokens = 9, .min_tokens = 5, .end_ids = {2}, .output = std::make_shared<TwoSevens>()};
  ASSERT_TRUE(check(request, 10).ok());
  TokenChooser chooser(request);
  EXPECT_EQ(chooser.wanted(), 0);
  for (const std::int32_t id : {7, 7, 2}) {
    EXPECT_FALSE(chooser.ended());
    EXPECT_FALSE(chooser.allows_all());
    std::array<std::uint32_t, 1> mask = {~std::uint32_t{0}};
    chooser.narrow(mask);
    EXPECT_EQ(mask[0], 1U << static_cast<unsigned>(id));
    chooser.take(id);
  }
  EXPECT_TRUE(chooser.ended());
  Request endless = request;
  endless.end_ids.clear();
  EXPECT_FALSE(check(endless, 10).ok());
}

TEST(SampleBatch, SaysWhyNothingCanBeChosen) {
  EXPECT_EQ(no_choice(std::vector<float>{1, std::nanf(""), 2}).where, "logits[1]");
  EXPECT_EQ(no_choice(std::vector<float>{1, 2, INFINITY}).found, "infinity");
  EXPECT_EQ(no_choice(std::vector<float>{-INFINITY}).found, "none");
}

}  // namespace
}  // namespace moracle
