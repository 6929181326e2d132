// Requests of a scheduler over a small model: what each gets depends on it alone.
#include "generate/scheduler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "generate/generate.h"
#include "support/model_fixture.h"
#include "support/tiny_model.h"

namespace moracle {
namespace {

using test::Loaded;

struct Heard {
  std::vector<std::int32_t> prompt;
  std::vector<double> prompt_logprobs;  // NaN: none
  std::vector<std::int32_t> ids;
  std::vector<double> logprobs;
  std::vector<std::vector<std::pair<std::int32_t, double>>> tops;
  std::optional<RequestOutcome> outcome;
  int starts = 0;
};

class Listener final : public RequestSink {
 public:
  void on_start(RequestId id, std::int64_t /*cached*/) override { ++heard[id].starts; }
  void on_prompt(RequestId id, std::span<const ScoredToken> tokens) override {
    for (const ScoredToken& token : tokens) {
      heard[id].prompt.push_back(token.id);
      heard[id].prompt_logprobs.push_back(token.logprob.value_or(std::nan("")));
    }
  }
  void on_token(RequestId id, const ScoredToken& token) override {
    Heard& of = heard[id];
    of.ids.push_back(token.id);
    of.logprobs.push_back(token.logprob.value_or(std::nan("")));
    auto& top = of.tops.emplace_back();
    for (const TokenLogprob& each : token.top) top.emplace_back(each.id, each.logprob);
    if (after_token) after_token(id);
  }
  void on_end(RequestId id, const RequestOutcome& outcome) override {
    EXPECT_FALSE(heard[id].outcome.has_value());
    heard[id].outcome = outcome;
  }

  std::map<RequestId, Heard> heard;
  std::function<void(RequestId)> after_token;
};

Loaded load_tiny(std::int64_t positions = 256) {
  Json config = test::tiny_qwen3_moe();
  config["max_position_embeddings"] = positions;
  const test::TemporaryFolder folder;
  test::TinyBuilder(config, {}).build().write(folder.path());
  Policy policy;
  policy.batch_invariant = true;
  return test::load(folder.path(), policy, 2, true);
}

std::vector<std::int32_t> tokens(std::size_t count, unsigned seed) {
  std::mt19937 rng(seed);
  std::vector<std::int32_t> ids(count);
  for (auto& id : ids) id = static_cast<std::int32_t>(rng() % 48);
  return ids;
}

// Requests of every kind, the same ones for the same number.
Request request_of(unsigned number) {
  std::mt19937 rng(number);
  Request request;
  const std::size_t shared = number % 3 == 0 ? 70 : 0;
  request.prompt = tokens(shared, 1000);
  const auto own = tokens(1 + rng() % 90, number);
  request.prompt.insert(request.prompt.end(), own.begin(), own.end());
  request.max_tokens = 1 + static_cast<std::int64_t>(rng() % 24);
  request.sampling.seed = number;
  request.key = std::to_string(number % 5);
  switch (number % 8) {
    case 0:
      break;
    case 1:
      request.sampling.temperature = 0.8;
      break;
    case 2:
      request.sampling = {.temperature = 1.0, .top_k = 5, .seed = number};
      break;
    case 3:
      request.sampling = {.temperature = 0.7, .top_p = 0.9, .min_p = 0.02, .seed = number};
      request.logprobs = 3;
      break;
    case 4:
      request.sampling = {.repetition_penalty = 1.3, .presence_penalty = 0.5};
      request.logprobs = 20;
      break;
    case 5:
      request.sampling.temperature = 1.3;
      request.logprobs = 0;
      request.echo = true;
      break;
    case 6:
      request.end_ids = {1, 5, 9, 13, 17};
      request.min_tokens = 1;
      request.logit_bias = {{.id = 5, .bias = 2.5F}};
      break;
    default:
      request.echo = true;
      request.logprobs = 5;
      request.max_tokens = number % 16 == 7 ? 0 : 6;
  }
  return request;
}

void expect_same(const Heard& got, const Heard& want) {
  const auto same = [](const std::vector<double>& a, const std::vector<double>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
  };
  EXPECT_EQ(got.ids, want.ids);
  EXPECT_TRUE(same(got.logprobs, want.logprobs));
  EXPECT_EQ(got.prompt, want.prompt);
  EXPECT_TRUE(same(got.prompt_logprobs, want.prompt_logprobs));
  EXPECT_EQ(got.tops, want.tops);
  ASSERT_TRUE(got.outcome && want.outcome);
  EXPECT_EQ(got.outcome->end, want.outcome->end);
  EXPECT_EQ(got.outcome->stop_id, want.outcome->stop_id);
  EXPECT_EQ(got.outcome->usage.completion, want.outcome->usage.completion);
}

Heard alone(const Loaded& loaded, const Request& request) {
  Scheduler scheduler(*loaded.model, *loaded.pool, {});
  Listener listener;
  const auto id = scheduler.submit(request, listener);
  EXPECT_TRUE(id.ok()) << id.error().message();
  while (scheduler.step()) {
  }
  return id.ok() ? listener.heard[*id] : Heard{};
}

TEST(Scheduler, ARequestGetsTheSameAloneAndInAnyMix) {
  const Loaded loaded = load_tiny();
  ASSERT_NE(loaded.model, nullptr);
  constexpr unsigned kRequests = 64;
  std::vector<Heard> want;
  for (unsigned i = 0; i < kRequests; ++i) want.push_back(alone(loaded, request_of(i)));
  for (const unsigned mix : {1U, 2U, 3U}) {
    SCOPED_TRACE("mix " + std::to_string(mix));
    std::mt19937 rng(mix);
    Scheduler scheduler(*loaded.model, *loaded.pool,
                        {.max_running = mix == 1 ? 64 : 7, .min_prefill = 5, .max_prefill = mix == 2 ? 17 : 200});
    Listener listener;
    Listener cancelled;
    std::map<RequestId, unsigned> numbers;
    unsigned next = 0;
    bool more = true;
    while (more || next < kRequests) {
      // Some come while others run; some go before they are done.
      for (unsigned i = 0; i < rng() % 9 && next < kRequests; ++i, ++next) {
        const auto id = scheduler.submit(request_of(next), listener);
        ASSERT_TRUE(id.ok()) << id.error().message();
        numbers[*id] = next;
        if (rng() % 3 == 0) {
          ASSERT_TRUE(scheduler.submit(request_of(next + 500), cancelled).ok());
        }
      }
      more = scheduler.step();
      if (rng() % 2 == 0 && !cancelled.heard.empty()) scheduler.cancel(std::prev(cancelled.heard.end())->first);
    }
    ASSERT_EQ(listener.heard.size(), kRequests);
    for (const auto& [id, number] : numbers) {
      SCOPED_TRACE("request " + std::to_string(number));
      expect_same(listener.heard[id], want[number]);
    }
    EXPECT_EQ(scheduler.status().running, 0);
    EXPECT_EQ(scheduler.status().waiting, 0);
  }
}

// The tokens of `run` with the same settings.
TEST(Scheduler, GivesWhatGenerateGives) {
  const Loaded loaded = load_tiny();
  ASSERT_NE(loaded.model, nullptr);
  for (unsigned number = 0; number < 24; ++number) {
    SCOPED_TRACE(number);
    Request request = request_of(number);
    if (request.min_tokens > 0 || request.echo || !request.logit_bias.empty()) continue;
    if (draws_from_all(request.sampling)) request.logprobs.reset();
    const auto state = test::new_state(*loaded.model);
    const auto want = generate(*loaded.model, *state, request.prompt,
                               {.sampling = request.sampling, .max_tokens = *request.max_tokens});
    ASSERT_TRUE(want.ok());
    EXPECT_EQ(alone(loaded, request).ids, want->ids);
  }
}

// Log-probabilities against a softmax of the model's own logits.
TEST(Scheduler, LogprobsAreOfRawLogits) {
  const Loaded loaded = load_tiny();
  ASSERT_NE(loaded.model, nullptr);
  Request request;
  request.prompt = tokens(40, 3);
  request.max_tokens = 5;
  request.sampling = {.temperature = 0.5, .seed = 4, .repetition_penalty = 1.5};
  request.logit_bias = {{.id = 7, .bias = 9.0F}};
  request.logprobs = 4;
  request.echo = true;
  const Heard heard = alone(loaded, request);
  ASSERT_EQ(heard.ids.size(), 5U);
  std::vector<std::int32_t> ids = request.prompt;
  ids.insert(ids.end(), heard.ids.begin(), heard.ids.end());
  const auto state = test::new_state(*loaded.model);
  const auto logits = test::run(*loaded.model, *state, ids);
  EXPECT_EQ(heard.prompt, request.prompt);
  EXPECT_TRUE(std::isnan(heard.prompt_logprobs[0]));
  for (std::size_t p = 0; p + 1 < ids.size(); ++p) {
    double sum = 0.0;
    for (std::size_t i = 0; i < 48; ++i) sum += std::exp(static_cast<double>(logits[p * 48 + i]));
    const double want = static_cast<double>(logits[p * 48 + static_cast<std::size_t>(ids[p + 1])]) - std::log(sum);
    const bool in_prompt = p + 1 < request.prompt.size();
    const double got = in_prompt ? heard.prompt_logprobs[p + 1] : heard.logprobs[p + 1 - request.prompt.size()];
    EXPECT_NEAR(got, want, 1e-12);
    if (in_prompt) continue;
    const auto& top = heard.tops[p + 1 - request.prompt.size()];
    ASSERT_EQ(top.size(), 4U);
    EXPECT_TRUE(
        std::is_sorted(top.begin(), top.end(), [](const auto& a, const auto& b) { return a.second > b.second; }));
    for (const auto& [id, logprob] : top) {
      EXPECT_NEAR(logprob, static_cast<double>(logits[p * 48 + static_cast<std::size_t>(id)]) - std::log(sum), 1e-12);
    }
  }
}

TEST(Scheduler, RefusesWhatItCannotServe) {
  const Loaded loaded = load_tiny();
  ASSERT_NE(loaded.model, nullptr);
  Scheduler scheduler(*loaded.model, *loaded.pool, {.context = 100, .max_queue = 2, .max_queue_tokens = 150});
  Listener listener;
  const auto refused = [&](auto change) {
    Request request{.prompt = tokens(20, 1), .max_tokens = 10};
    change(request);
    const auto id = scheduler.submit(request, listener);
    return id.ok() ? std::string() : id.error().code;
  };
  EXPECT_EQ(refused([](Request& r) { r.prompt.clear(); }), "prompt.empty");
  EXPECT_EQ(refused([](Request& r) { r.prompt[3] = 48; }), "model.token");
  EXPECT_EQ(refused([](Request& r) { r.stop_ids = {-1}; }), "model.token");
  EXPECT_EQ(refused([](Request& r) { r.logit_bias = {{.id = 99}}; }), "model.token");
  EXPECT_EQ(refused([](Request& r) { r.max_tokens = 81; }), "model.context");
  EXPECT_EQ(refused([](Request& r) { r.max_tokens = 0; }), "sampling.range");
  EXPECT_EQ(refused([](Request& r) { r.min_tokens = 11; }), "sampling.range");
  EXPECT_EQ(refused([](Request& r) { r.logprobs = 21; }), "sampling.range");
  EXPECT_EQ(refused([](Request& r) { r.sampling.top_p = 0; }), "sampling.range");
  EXPECT_EQ(refused([](Request& r) { r.logit_bias = {{.id = 1, .bias = std::nanf("")}}; }), "sampling.range");
  EXPECT_FALSE(scheduler.busy());
  EXPECT_EQ(refused([](Request& r) { r.prompt = tokens(90, 1); }), "");
  EXPECT_EQ(refused([](Request& r) { r.prompt = tokens(70, 1); }), "scheduler.queue");
  EXPECT_EQ(refused([](Request&) {}), "");
  EXPECT_EQ(refused([](Request&) {}), "scheduler.queue");
  while (scheduler.step()) {
  }
  EXPECT_EQ(listener.heard.size(), 2U);
}

TEST(Scheduler, CancelsInTheQueueWhileRunningAndFromASink) {
  const Loaded loaded = load_tiny();
  ASSERT_NE(loaded.model, nullptr);
  Scheduler scheduler(*loaded.model, *loaded.pool, {.max_running = 2});
  Listener listener;
  std::vector<RequestId> ids;
  for (unsigned i = 0; i < 4; ++i) {
    const auto id = scheduler.submit({.prompt = tokens(5, i), .max_tokens = 50}, listener);
    ASSERT_TRUE(id.ok());
    ids.push_back(*id);
  }
  EXPECT_TRUE(scheduler.cancel(ids[3]));
  EXPECT_EQ(listener.heard[ids[3]].outcome->end, RequestEnd::cancelled);
  EXPECT_FALSE(scheduler.cancel(ids[3]));
  listener.after_token = [&](RequestId id) {
    if (id == ids[1] && listener.heard[id].ids.size() == 3) scheduler.cancel(id);
  };
  for (int i = 0; i < 5; ++i) scheduler.step();
  EXPECT_EQ(listener.heard[ids[1]].ids.size(), 3U);
  EXPECT_EQ(listener.heard[ids[1]].outcome->end, RequestEnd::cancelled);
  EXPECT_EQ(listener.heard[ids[2]].starts, 1);  // its place was free in the next step
  EXPECT_TRUE(scheduler.cancel(ids[0]));
  EXPECT_EQ(scheduler.status().running, 1);
  while (scheduler.step()) {
  }
  EXPECT_EQ(listener.heard[ids[2]].ids.size(), 50U);
  EXPECT_EQ(listener.heard[ids[2]].outcome->end, RequestEnd::length);
}

// A key with a hundred requests does not keep the one request of another waiting behind them.
TEST(Scheduler, KeysTakeTurns) {
  const Loaded loaded = load_tiny();
  ASSERT_NE(loaded.model, nullptr);
  Scheduler scheduler(*loaded.model, *loaded.pool, {.max_running = 1});
  Listener listener;
  for (unsigned i = 0; i < 100; ++i) {
    ASSERT_TRUE(scheduler.submit({.prompt = tokens(100, i), .max_tokens = 1, .key = "many"}, listener).ok());
  }
  const auto late = scheduler.submit({.prompt = tokens(100, 7), .max_tokens = 1, .key = "one"}, listener);
  ASSERT_TRUE(late.ok());
  int steps = 0;
  while (!listener.heard[*late].outcome && steps < 200) {
    scheduler.step();
    ++steps;
  }
  EXPECT_LE(steps, 6);  // a turn is 512 tokens
}

}  // namespace
}  // namespace moracle
