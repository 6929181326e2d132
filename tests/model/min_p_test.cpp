// Draws with min_p from the highest logits alone, and from all where those are too few.
#include <gtest/gtest.h>

#include <algorithm>

#include "generate/scheduler.h"
#include "support/model_fixture.h"
#include "support/tiny_model.h"

namespace moracle {
namespace {

using test::Loaded;

constexpr std::int64_t kVocabulary = 300;  // above kMaxHeadTopK

Loaded load_wide() {
  Json config = test::tiny_qwen3_moe();
  config["vocab_size"] = kVocabulary;
  const test::TemporaryFolder folder;
  test::TinyBuilder(std::move(config), {}).build().write(folder.path());
  return test::load(folder.path(), test::pinned("ref"), 2);
}

std::vector<std::int32_t> prompt_of(std::int32_t number) {
  return {number, 2 * number + 1, 7, 299 - number};
}

TEST(MinP, ARowHasAllLogitsWhereTheTopAreTooFew) {
  const Loaded loaded = load_wide();
  ASSERT_NE(loaded.model, nullptr);
  constexpr std::int64_t kTop = 5;
  // Far below any share of the fifth, above any, and none asked for.
  const std::vector<double> shares = {1e-30, 1.5, 0.0, 1e-30};
  std::vector<std::unique_ptr<SequenceState>> owned;
  std::vector<SequenceState*> states;
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> positions;
  std::vector<Batch::Span> spans;
  std::vector<std::vector<float>> want;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const auto prompt = prompt_of(static_cast<std::int32_t>(i) + 3);
    const auto alone = test::new_state(*loaded.model);
    want.push_back(test::run(*loaded.model, *alone, prompt, LogitRows::last_of_each));
    owned.push_back(test::new_state(*loaded.model));
    states.push_back(owned.back().get());
    spans.push_back({.begin = std::ssize(ids), .count = std::ssize(prompt), .top_k = kTop, .min_share = shares[i]});
    ids.insert(ids.end(), prompt.begin(), prompt.end());
    for (std::int32_t p = 0; p < std::ssize(prompt); ++p) positions.push_back(p);
  }
  BatchResult result;
  const auto done = loaded.model->run({.ids = ids, .positions = positions, .spans = spans}, states, result);
  ASSERT_TRUE(done.ok()) << done.error().message();
  EXPECT_EQ(result.logits.size(), 2U * kVocabulary);
  for (std::size_t i = 0; i < shares.size(); ++i) {
    SCOPED_TRACE(i);
    const BatchResult::Span& given = result.spans[i];
    ASSERT_FALSE(given.error);
    EXPECT_EQ(given.all, shares[i] == 1e-30);
    EXPECT_EQ(result.top[given.top].logit, *std::max_element(want[i].begin(), want[i].end()));
    if (!given.all) continue;
    const auto row = std::span(result.logits).subspan(given.logits, kVocabulary);
    EXPECT_TRUE(std::equal(row.begin(), row.end(), want[i].begin()));
  }
}

class Ids final : public RequestSink {
 public:
  void on_token(RequestId /*id*/, const ScoredToken& token) override { ids.push_back(token.id); }
  void on_end(RequestId /*id*/, const RequestOutcome& outcome) override { EXPECT_FALSE(outcome.error); }
  std::vector<std::int32_t> ids;
};

// Log-probabilities need all logits, and change no draw.
TEST(MinP, DrawsAreThoseFromAllLogits) {
  const Loaded loaded = load_wide();
  ASSERT_NE(loaded.model, nullptr);
  for (const SamplingOptions& sampling :
       {SamplingOptions{.temperature = 0.3, .min_p = 0.05}, SamplingOptions{.temperature = 0.3, .min_p = 1.0},
        SamplingOptions{.temperature = 1.0, .top_k = 100, .min_p = 0.2},
        SamplingOptions{.temperature = 5.0, .min_p = 0.01}}) {  // which drops nearly none
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      SCOPED_TRACE(testing::Message() << sampling.temperature << " " << sampling.min_p << " " << seed);
      Request request{.prompt = prompt_of(static_cast<std::int32_t>(seed) + 1), .max_tokens = 24};
      request.sampling = sampling;
      request.sampling.seed = seed;
      std::vector<std::vector<std::int32_t>> drawn;
      for (const bool all : {false, true}) {
        request.logprobs = all ? std::optional<std::int64_t>(0) : std::nullopt;
        Ids sink;
        Scheduler scheduler(*loaded.model, *loaded.pool, SchedulerOptions{});
        ASSERT_TRUE(scheduler.submit(request, sink).ok());
        while (scheduler.step()) {
        }
        drawn.push_back(sink.ids);
      }
      EXPECT_EQ(drawn[0].size(), 24U);
      EXPECT_EQ(drawn[0], drawn[1]);
    }
  }
}

}  // namespace
}  // namespace moracle
