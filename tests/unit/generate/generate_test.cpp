#include "generate/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "support/successor_model.h"

namespace moracle {
namespace {

using test::counted_state;
using test::SuccessorModel;

Result<Generation> generate_from(SuccessorModel& model, std::vector<std::int32_t> prompt,
                                 const GenerateOptions& options) {
  const auto state = model.new_sequence();
  ThreadPool pool(1);
  return generate(model, pool, **state, prompt, options);
}

TEST(Generate, StopsAtEitherOfSeveralEndTokens) {
  SuccessorModel model(100);
  const auto result = generate_from(model, {1, 2}, {.stop_ids = {6, 9}});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->ids, (std::vector<std::int32_t>{3, 4, 5, 6}));
  EXPECT_EQ(result->finish, FinishReason::stop);
  EXPECT_EQ(result->timing.prefill_tokens, 2);
  EXPECT_EQ(result->timing.decode_tokens, 3);  // the stopping token is not fed back
  EXPECT_EQ(model.calls.size(), 4U);
}

TEST(Generate, StopsAtTheLimit) {
  SuccessorModel model(100);
  const auto result = generate_from(model, {8}, {.max_tokens = 4});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->ids, (std::vector<std::int32_t>{9, 0, 1, 2}));
  EXPECT_EQ(result->finish, FinishReason::length);
  EXPECT_EQ(result->timing.decode_tokens, 3);
}

TEST(Generate, AnEndTokenAtTheLimitIsAStop) {
  SuccessorModel model(100);
  const auto result = generate_from(model, {1}, {.max_tokens = 2, .stop_ids = {3}});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->finish, FinishReason::stop);
}

TEST(Generate, StopsWhenTheContextIsFull) {
  SuccessorModel model(5);
  const auto result = generate_from(model, {1, 2, 3}, {.max_tokens = 50});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->ids.size(), 2U);
  EXPECT_EQ(result->finish, FinishReason::length);
}

TEST(Generate, RefusesPromptsThatAreEmptyOrTooLong) {
  SuccessorModel model(3);
  EXPECT_EQ(generate_from(model, {}, {}).error().code, "prompt.empty");
  EXPECT_EQ(generate_from(model, {1, 2, 3}, {}).error().code, "model.context");
  EXPECT_TRUE(model.calls.empty());
  EXPECT_EQ(generate_from(model, {1, 2}, {.max_tokens = 50})->ids.size(), 1U);
}

TEST(Generate, AnInterruptKeepsWhatThereIs) {
  SuccessorModel model(100);
  int tokens = 0;
  GenerateOptions options;
  options.on_token = [&](std::int32_t) { ++tokens; };
  options.interrupted = [&] { return tokens == 2; };
  const auto result = generate_from(model, {0}, options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->ids, (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(result->finish, FinishReason::interrupted);
}

TEST(Generate, TheCallersContextCountsPromptAndAnswer) {
  SuccessorModel model(100);
  const auto result = generate_from(model, {1, 2, 3}, {.max_tokens = 50, .context = 5});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->ids.size(), 2U);
  EXPECT_EQ(result->finish, FinishReason::length);
  EXPECT_EQ(generate_from(model, {1, 2, 3}, {.context = 3}).error().code, "model.context");
  EXPECT_EQ(generate_from(model, {1}, {.max_tokens = 101, .context = 1'000})->ids.size(), 99U);
}

TEST(Generate, ACallersStopIsAStop) {
  SuccessorModel model(100);
  int tokens = 0;
  GenerateOptions options;
  options.on_token = [&](std::int32_t) { ++tokens; };
  options.reached_stop = [&] { return tokens == 2; };
  const auto result = generate_from(model, {0}, options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->ids, (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(result->finish, FinishReason::stop);
}

// The number of forwards that a prompt takes moves no draw.
TEST(Generate, EveryDrawFromAllTokensHasASeedOfItsOwn) {
  const GenerateOptions options{.sampling = {.temperature = 1.0, .seed = 7}, .max_tokens = 3};
  SuccessorModel model(2000);
  ASSERT_TRUE(generate_from(model, {1}, options).ok());
  SuccessorModel longer(2000);
  ASSERT_TRUE(generate_from(longer, std::vector<std::int32_t>(kHostPrefillChunk + 1, 1), options).ok());
  ASSERT_EQ(model.seeds.size(), 3U);
  EXPECT_EQ(std::set<std::uint64_t>(model.seeds.begin(), model.seeds.end()).size(), 3U);
  EXPECT_EQ(longer.calls.size(), 4U);
  EXPECT_EQ(longer.seeds, model.seeds);
}

// Logits that depend on all tokens so far, of both signs and close together.
class HashingModel final : public Model {
 public:
  HashingModel() {
    info_.vocab_size = 40;
    info_.max_context = 1000;
  }
  [[nodiscard]] const ModelInfo& info() const override { return info_; }
  [[nodiscard]] Result<std::unique_ptr<SequenceState>> new_sequence() const override { return counted_state(); }
  Result<> reserve(std::int64_t /*tokens*/) override { return Ok{}; }
  static std::vector<float> logits_after(std::span<const std::int32_t> ids) {
    std::uint64_t hash = 1469598103934665603ULL;
    for (const std::int32_t id : ids) hash = (hash ^ static_cast<std::uint64_t>(id)) * 1099511628211ULL;
    std::vector<float> logits;
    for (std::uint64_t i = 0; i < 40; ++i) {
      hash = (hash ^ i) * 1099511628211ULL;
      logits.push_back(static_cast<float>(hash >> 40U & 0xFFFU) / 2048.0F - 1.0F);
    }
    return logits;
  }
  Result<> run(const Batch& batch, std::span<SequenceState* const> states, BatchResult& result) override {
    EXPECT_EQ(batch.spans[0].top_k, 0) << "the largest logits do not decide";
    result.spans.assign(1, {});
    states[0]->commit(states[0]->length() + std::ssize(batch.ids));
    seen_.insert(seen_.end(), batch.ids.begin(), batch.ids.end());
    result.logits = logits_after(seen_);
    test::sample_on_host(batch, info_.vocab_size, result);
    return Ok{};
  }

 private:
  ModelInfo info_;
  std::vector<std::int32_t> seen_;
};

// Every step by the definition, from the logits of the whole vocabulary.
std::vector<std::int32_t> plain_greedy(const SamplingOptions& sampling, const std::vector<std::int32_t>& before,
                                       const std::vector<std::int32_t>& prompt, int steps) {
  std::vector<std::int32_t> ids = prompt;
  std::vector<std::int32_t> answer;
  for (int step = 0; step < steps; ++step) {
    std::vector<float> logits = HashingModel::logits_after(ids);
    for (std::int32_t id = 0; id < 40; ++id) {
      float& logit = logits[static_cast<std::size_t>(id)];
      const auto times = std::count(answer.begin(), answer.end(), id);
      const bool seen = std::count(ids.begin(), ids.end(), id) + std::count(before.begin(), before.end(), id) > 0;
      const auto factor = static_cast<float>(sampling.repetition_penalty);
      if (seen) logit = logit > 0 ? logit / factor : logit * factor;
      logit -= static_cast<float>(times) * static_cast<float>(sampling.frequency_penalty);
      if (times > 0) logit -= static_cast<float>(sampling.presence_penalty);
    }
    answer.push_back(static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    ids.push_back(answer.back());
  }
  return answer;
}

TEST(Generate, PenaltiesAreThoseOfAllLogits) {
  const std::vector<std::int32_t> prompt = {3, 1, 4, 1, 5};
  std::set<std::vector<std::int32_t>> answers;
  for (const SamplingOptions& sampling :
       {SamplingOptions{.repetition_penalty = 1.05}, SamplingOptions{.repetition_penalty = 5.0},
        SamplingOptions{.repetition_penalty = 0.2}, SamplingOptions{.presence_penalty = 0.3},
        SamplingOptions{.frequency_penalty = 0.1}, SamplingOptions{.frequency_penalty = -2.0},
        SamplingOptions{.repetition_penalty = 1.3, .presence_penalty = -0.2, .frequency_penalty = 0.4}}) {
    for (const std::vector<std::int32_t>& before :
         {std::vector<std::int32_t>{}, std::vector<std::int32_t>{0, 7, 9, 20}}) {
      HashingModel model;
      const auto state = model.new_sequence();
      (*state)->commit(std::ssize(before));
      std::vector<std::int32_t> whole = before;
      whole.insert(whole.end(), prompt.begin(), prompt.end());
      ThreadPool pool(1);
      const auto result = generate(model, pool, **state, whole, {.sampling = sampling, .max_tokens = 60});
      ASSERT_TRUE(result.ok());
      EXPECT_EQ(result->ids, plain_greedy(sampling, before, prompt, 60));
      answers.insert(result->ids);
    }
  }
  EXPECT_GE(answers.size(), 8U) << "they change the answer";
}

TEST(Generate, LongPromptsAreFedInPieces) {
  SuccessorModel model(10'000);
  const std::vector<std::int32_t> prompt(static_cast<std::size_t>(2 * kHostPrefillChunk + 1), 4);
  const auto result = generate_from(model, prompt, {.max_tokens = 1});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->ids, std::vector<std::int32_t>{5});
  ASSERT_EQ(model.calls.size(), 3U);
  EXPECT_EQ(model.calls[2].size(), 1U);
}

// A chat's next question: what its state holds is not computed again.
TEST(Generate, GoesOnFromWhatAStateHolds) {
  SuccessorModel model(100);
  ThreadPool pool(1);
  const auto state = model.new_sequence();
  const auto never = [] { return false; };
  ASSERT_TRUE(prefill(model, pool, **state, std::vector<std::int32_t>{1, 2}, never).ok());
  EXPECT_EQ((*state)->length(), 2);
  ASSERT_TRUE(prefill(model, pool, **state, std::vector<std::int32_t>{1, 2}, never).ok());
  const std::vector<std::int32_t> prompt = {1, 2, 3, 4};
  const auto result = generate(model, pool, **state, prompt, {.max_tokens = 2});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->ids, (std::vector<std::int32_t>{5, 6}));
  EXPECT_EQ(result->timing.prefill_tokens, 2);
  EXPECT_EQ(model.calls, (std::vector<std::vector<std::int32_t>>{{1, 2}, {3, 4}, {5}}));
  EXPECT_EQ((*state)->length(), 5) << "the last token was chosen, not fed";
  EXPECT_EQ(generate(model, pool, **state, prompt, {}).error().code, "prompt.empty");
}

TEST(Generate, AnInterruptActsBetweenTwoPiecesOfAPrompt) {
  const std::vector<std::int32_t> prompt(static_cast<std::size_t>(3 * kHostPrefillChunk), 4);
  SuccessorModel model(10'000);
  ThreadPool pool(1);
  const auto state = model.new_sequence();
  GenerateOptions options;
  options.interrupted = [&] { return model.calls.size() == 2; };
  const auto result = generate(model, pool, **state, prompt, options);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->ids.empty());
  EXPECT_EQ(result->finish, FinishReason::interrupted);
  EXPECT_EQ(result->timing.prefill_tokens, 2 * kHostPrefillChunk);
  EXPECT_EQ((*state)->length(), 2 * kHostPrefillChunk);
  // Behind the last piece: no token is made.
  options.interrupted = [&] { return model.calls.size() == 3; };
  EXPECT_TRUE(generate(model, pool, **state, prompt, options)->ids.empty());
  EXPECT_EQ((*state)->length(), 3 * kHostPrefillChunk);
  const auto other = model.new_sequence();
  ASSERT_TRUE(prefill(model, pool, **other, prompt, [&] { return model.calls.size() == 4; }).ok());
  EXPECT_EQ((*other)->length(), kHostPrefillChunk);
}

TEST(Generate, NumbersThatAreNoneEndIt) {
  SuccessorModel model(100);
  model.poison = true;
  EXPECT_EQ(generate_from(model, {1}, {}).error().code, "numeric.nan");
}

}  // namespace
}  // namespace moracle
