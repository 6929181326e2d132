// Requests of a scheduler over a small model: what each gets depends on it alone.
#include "generate/scheduler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
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
  std::vector<std::uint32_t> routing;
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
    if (scheduler == nullptr) return;
    const auto counts = scheduler->routing_of(id);
    heard[id].routing.assign(counts.begin(), counts.end());
  }

  std::map<RequestId, Heard> heard;
  std::function<void(RequestId)> after_token;
  const Scheduler* scheduler = nullptr;  // asked for counts of experts, where there is one
};

// `kv_memory`: 0: as much as there is.
Loaded load_folder(const std::filesystem::path& folder, std::size_t kv_memory = 0) {
  Policy policy;
  policy.batch_invariant = true;
  Loaded loaded;
  auto checkpoint = Checkpoint::open(folder);
  if (!checkpoint.ok()) return loaded;
  auto plan = LoadPlan::make(*checkpoint, probe_machine(), policy);
  EXPECT_TRUE(plan.ok());
  loaded.pool = std::make_unique<ThreadPool>(2);
  auto model = load_model(**plan, *loaded.pool, {.kv_memory = kv_memory});
  EXPECT_TRUE(model.ok());
  loaded.model = std::move(*model);
  return loaded;
}

Loaded load_tiny(std::size_t kv_memory = 0) {
  const test::TemporaryFolder folder;
  test::TinyBuilder(test::tiny_qwen3_moe(), {}).build().write(folder.path());
  return load_folder(folder.path(), kv_memory);
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
  listener.scheduler = &scheduler;
  const auto id = scheduler.submit(request, listener);
  EXPECT_TRUE(id.ok()) << id.error().message();
  while (scheduler.step()) {
  }
  return id.ok() ? listener.heard[*id] : Heard{};
}

// All requests in an order and in steps that `seed` says, with others that are cancelled on the way. What each was
// given is what it was given alone.
SchedulerStatus expect_same_in_mix(const Loaded& loaded, const std::vector<Request>& requests,
                                   const std::vector<Heard>& want, const SchedulerOptions& options, unsigned seed) {
  std::mt19937 rng(seed);
  Scheduler scheduler(*loaded.model, *loaded.pool, options);
  Listener listener;
  Listener cancelled;
  std::map<RequestId, std::size_t> numbers;
  std::vector<RequestId> held;
  const auto let_go = [&] {
    for (const RequestId id : held) scheduler.hold(id, false);
    held.clear();
  };
  std::size_t next = 0;
  bool more = true;
  for (int step = 0; (more || next < requests.size()) && step < 20000; ++step) {
    // Some come while others run; some go before they are done.
    for (unsigned i = 0; i < rng() % 9 && next < requests.size(); ++i, ++next) {
      const auto id = scheduler.submit(requests[next], listener);
      if (!id.ok()) ADD_FAILURE() << id.error().message();
      numbers[id.ok() ? *id : 0] = next;
      Request other = requests[next];
      other.sampling.seed += 500;
      if (rng() % 3 == 0) {
        EXPECT_TRUE(scheduler.submit(other, cancelled).ok());
      }
    }
    more = scheduler.step();
    const SchedulerStatus status = scheduler.status();
    EXPECT_LE(status.kv_bytes, status.kv_budget);
    // Some are held for a while.
    if (!numbers.empty() && rng() % 3 == 0) {
      held.push_back(std::next(numbers.begin(), static_cast<std::ptrdiff_t>(rng() % numbers.size()))->first);
      scheduler.hold(held.back(), true);
    }
    if (!more || rng() % 8 == 0) {
      let_go();
      more = scheduler.busy();
    }
    if (rng() % 2 == 0 && !cancelled.heard.empty()) scheduler.cancel(std::prev(cancelled.heard.end())->first);
  }
  EXPECT_FALSE(more) << "it came to no end";
  EXPECT_EQ(listener.heard.size(), requests.size());
  for (const auto& [id, number] : numbers) {
    SCOPED_TRACE("request " + std::to_string(number));
    expect_same(listener.heard[id], want[number]);
  }
  SchedulerStatus status = scheduler.status();
  // Each start looks its tokens up once, whether it is the first or follows a preemption.
  std::uint64_t starts = status.preemptions;
  std::size_t longest = 0;
  for (const auto* const heard : {&listener.heard, &cancelled.heard}) {
    for (const auto& [id, of] : *heard) starts += static_cast<std::uint64_t>(of.starts);
  }
  for (const Request& each : requests) {
    longest = std::max(longest, each.prompt.size() + static_cast<std::size_t>(each.max_tokens.value_or(0)));
  }
  EXPECT_LE(status.prefix_queries, starts * longest);
  EXPECT_EQ(status.running, 0);
  EXPECT_EQ(status.waiting, 0);
  EXPECT_EQ(status.kv_bytes, status.kv_prefix_bytes);
  scheduler.drop_prefixes();
  EXPECT_EQ(scheduler.status().kv_bytes, 0);
  return status;
}

TEST(Scheduler, ARequestGetsTheSameAloneAndInAnyMix) {
  const Loaded loaded = load_tiny();
  const Loaded narrow = load_tiny(std::size_t{13} << 14U);  // 13 blocks, where a request takes up to 4
  ASSERT_NE(loaded.model, nullptr);
  ASSERT_NE(narrow.model, nullptr);
  std::vector<Request> requests;
  std::vector<Heard> want;
  for (unsigned i = 0; i < 64; ++i) {
    requests.push_back(request_of(i));
    want.push_back(alone(loaded, requests.back()));
  }
  const std::vector<SchedulerOptions> options{
      {.max_running = 64, .min_prefill = 5},
      {.max_running = 7, .min_prefill = 5, .max_prefill = 17},
      {.max_running = 9, .max_running_per_key = 3, .share_prefixes = true},
      {.reuse_prefixes = false},
  };
  SchedulerStatus sum;
  for (unsigned mix = 0; mix < options.size(); ++mix) {
    SCOPED_TRACE("mix " + std::to_string(mix));
    const SchedulerStatus wide = expect_same_in_mix(loaded, requests, want, options[mix], mix);
    EXPECT_EQ(wide.preemptions, 0U);
    EXPECT_EQ(wide.cached_tokens > 0, options[mix].reuse_prefixes);
    sum.preemptions += expect_same_in_mix(narrow, requests, want, options[mix], mix + 10).preemptions;
  }
  EXPECT_GT(sum.preemptions, 0U);
}

// Families with a recurrent state, and with windows.
TEST(Scheduler, OtherFamiliesGetTheSameInAnyMix) {
  for (const char* family : {"qwen3_next", "gpt_oss-stacked", "deepseek_v3-direct", "step3p5-lists"}) {
    SCOPED_TRACE(family);
    const auto folder = test::data_dir() / "families" / family;
    const Loaded loaded = load_folder(folder);
    ASSERT_NE(loaded.model, nullptr);
    const std::int64_t most = loaded.model->info().max_context;
    std::vector<Request> requests;
    std::vector<Heard> want;
    for (unsigned i = 0; i < 20; ++i) {
      Request request = request_of(i);
      request.prompt.resize(std::min<std::size_t>(request.prompt.size(), static_cast<std::size_t>(most) - 25));
      requests.push_back(request);
      want.push_back(alone(loaded, requests.back()));
    }
    const SchedulerStatus status = expect_same_in_mix(loaded, requests, want, {.max_running = 6, .max_prefill = 40}, 3);
    if (most > 200) {
      EXPECT_GT(status.cached_tokens, 0U);
    }
  }
}

TEST(Scheduler, APrefixIsComputedOnceForAKey) {
  const Loaded loaded = load_tiny();
  ASSERT_NE(loaded.model, nullptr);
  Scheduler scheduler(*loaded.model, *loaded.pool, {});
  Listener listener;
  const auto cached = [&](const char* key, const char* salt) {
    const auto id = scheduler.submit({.prompt = tokens(150, 1), .max_tokens = 2, .key = key, .salt = salt}, listener);
    EXPECT_TRUE(id.ok());
    while (scheduler.step()) {
    }
    return listener.heard[*id].outcome->usage.cached;
  };
  EXPECT_EQ(cached("a", ""), 0);
  EXPECT_EQ(cached("a", ""), 128);
  EXPECT_EQ(cached("b", ""), 0);
  EXPECT_EQ(cached("a", "s"), 0);
  EXPECT_EQ(cached("b", ""), 128);
}

TEST(Scheduler, CountsTheExpertsThatTokensTake) {
  const Loaded loaded = load_tiny();
  ASSERT_NE(loaded.model, nullptr);
  const ModelInfo& info = loaded.model->info();
  const auto layer = static_cast<std::size_t>(info.experts);
  const auto counted = [](unsigned number) {
    Request request = request_of(number);
    request.count_routing = true;
    return request;
  };
  std::map<unsigned, std::vector<std::uint32_t>> own;
  for (unsigned i = 0; i < 12; ++i) {
    const Heard heard = alone(loaded, counted(i));
    own[i] = heard.routing;
    ASSERT_EQ(own[i].size(), layer * static_cast<std::size_t>(info.layers));
    // The last token is chosen and not computed.
    const std::int64_t computed = heard.outcome->usage.prompt + heard.outcome->usage.completion - 1;
    for (std::size_t at = 0; at < own[i].size(); at += layer) {
      const auto sum = std::accumulate(own[i].begin() + static_cast<std::ptrdiff_t>(at),
                                       own[i].begin() + static_cast<std::ptrdiff_t>(at + layer), std::int64_t{0});
      EXPECT_EQ(sum, computed * info.experts_per_token) << i;
    }
  }
  Scheduler scheduler(*loaded.model, *loaded.pool, {.max_running = 5, .max_prefill = 17, .reuse_prefixes = false});
  Listener listener;
  listener.scheduler = &scheduler;
  std::map<unsigned, RequestId> ids;
  for (unsigned i = 0; i < 12; ++i) ids[i] = *scheduler.submit(counted(i), listener);
  const RequestId uncounted = *scheduler.submit(request_of(12), listener);
  EXPECT_TRUE(scheduler.routing_of(ids[0]).empty());
  scheduler.step();
  EXPECT_FALSE(scheduler.routing_of(ids[0]).empty());
  const std::vector<std::uint64_t> early = scheduler.routing();
  while (scheduler.step()) {
  }
  std::vector<std::uint64_t> sum(own[0].size());
  for (const auto& [i, id] : ids) {
    EXPECT_EQ(listener.heard[id].routing, own[i]) << i;
    for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += own[i][e];
  }
  EXPECT_EQ(scheduler.routing(), sum);
  EXPECT_FALSE(listener.heard[uncounted].ids.empty());
  EXPECT_TRUE(listener.heard[uncounted].routing.empty());
  EXPECT_TRUE(scheduler.routing_of(ids[0]).empty());
  for (std::size_t e = 0; e < sum.size(); ++e) EXPECT_LE(early[e], sum[e]);
}

TEST(Scheduler, WhatNoMemoryHoldsIsRefusedAtOnce) {
  const Loaded loaded = load_tiny(std::size_t{2} << 14U);
  ASSERT_NE(loaded.model, nullptr);
  Scheduler scheduler(*loaded.model, *loaded.pool, {});
  Listener listener;
  const auto refused = scheduler.submit({.prompt = tokens(100, 1), .max_tokens = 29}, listener);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, "scheduler.kv");
  const auto whole = scheduler.submit({.prompt = tokens(100, 1)}, listener);
  ASSERT_TRUE(whole.ok());
  while (scheduler.step()) {
  }
  EXPECT_EQ(listener.heard[*whole].ids.size(), 28U);
}

// The tokens of `run` with the same settings, in a state of its caller.
TEST(Scheduler, GivesWhatGenerateGives) {
  const Loaded loaded = load_tiny();
  ASSERT_NE(loaded.model, nullptr);
  for (unsigned number = 0; number < 24; ++number) {
    SCOPED_TRACE(number);
    Request request = request_of(number);
    if (request.min_tokens > 0 || request.echo || !request.logit_bias.empty()) continue;
    if (request.sampling.draws_from_all()) request.logprobs.reset();
    const auto state = test::new_state(*loaded.model);
    const auto want = generate(*loaded.model, *loaded.pool, *state, request.prompt,
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

TEST(Scheduler, TellsTheSecondsBetweenRequestsThatEnd) {
  const Loaded loaded = load_tiny();
  ASSERT_NE(loaded.model, nullptr);
  Scheduler scheduler(*loaded.model, *loaded.pool, {});
  Listener listener;
  ASSERT_TRUE(scheduler.submit({.prompt = tokens(5, 1), .max_tokens = 2}, listener).ok());
  ASSERT_TRUE(scheduler.submit({.prompt = tokens(5, 2), .max_tokens = 9}, listener).ok());
  EXPECT_EQ(scheduler.status().request_seconds, 0);
  double worked = 0;
  const auto take_steps = [&](std::uint64_t until_ended) {
    while (scheduler.status().ended[static_cast<std::size_t>(RequestEnd::length)] < until_ended) {
      scheduler.step();
      worked += scheduler.status().step_seconds;
    }
  };
  take_steps(1);
  EXPECT_DOUBLE_EQ(scheduler.status().request_seconds, worked);
  take_steps(2);
  EXPECT_NEAR(scheduler.status().request_seconds, worked / 2, 0.02 * worked) << "the first counts a little less";
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

TEST(Scheduler, AHeldRequestTakesNoPartAndNoPlace) {
  const Loaded loaded = load_tiny(std::size_t{13} << 14U);
  ASSERT_NE(loaded.model, nullptr);
  const Request first{.prompt = tokens(5, 1), .max_tokens = 60, .ignore_eos = true};
  const Request other{.prompt = tokens(9, 2), .max_tokens = 40, .ignore_eos = true};
  const Heard want = alone(loaded, first);
  Scheduler scheduler(*loaded.model, *loaded.pool, {.max_running = 1});
  Listener listener;
  const RequestId held = *scheduler.submit(first, listener);
  while (listener.heard[held].ids.size() < 3) scheduler.step();
  EXPECT_EQ(scheduler.status().running, 1);
  scheduler.hold(held, true);
  EXPECT_EQ(scheduler.status().running, 0);
  EXPECT_EQ(scheduler.status().waiting, 1);
  EXPECT_EQ(scheduler.status().deferred, 1);
  EXPECT_FALSE(scheduler.busy());
  EXPECT_FALSE(scheduler.step());
  std::vector<RequestId> others;
  for (int i = 0; i < 5; ++i) others.push_back(*scheduler.submit(other, listener));
  while (scheduler.step()) {
  }
  for (const RequestId id : others) EXPECT_EQ(listener.heard[id].ids.size(), 40U);
  EXPECT_EQ(listener.heard[held].ids.size(), 3U);
  scheduler.hold(held, false);
  EXPECT_TRUE(scheduler.busy());
  while (scheduler.step()) {
  }
  EXPECT_EQ(listener.heard[held].ids, want.ids);
  const RequestId last = *scheduler.submit(first, listener);
  scheduler.step();
  scheduler.hold(last, true);
  EXPECT_TRUE(scheduler.cancel(last));
  EXPECT_EQ(listener.heard[last].outcome->end, RequestEnd::cancelled);
  scheduler.hold(last, false);  // of one that is not there any more
}

// Those that are held give their memory to one that needs it, and get it again.
TEST(Scheduler, HeldMemoryIsOthers) {
  const Loaded loaded = load_tiny(std::size_t{13} << 14U);
  ASSERT_NE(loaded.model, nullptr);
  std::vector<Request> requests;
  std::vector<Heard> want;
  for (unsigned i = 0; i < 24; ++i) {
    requests.push_back({.prompt = tokens(100, i), .max_tokens = 30, .ignore_eos = true});
    want.push_back(alone(loaded, requests.back()));
  }
  Scheduler scheduler(*loaded.model, *loaded.pool, {.reuse_prefixes = false});
  Listener listener;
  std::vector<RequestId> ids;
  for (const Request& request : requests) {
    ids.push_back(*scheduler.submit(request, listener));
    while (listener.heard[ids.back()].ids.size() < 2) ASSERT_TRUE(scheduler.step());
    scheduler.hold(ids.back(), true);
  }
  EXPECT_GT(scheduler.status().preemptions, 0U);
  EXPECT_EQ(scheduler.status().deferred, 24);
  // One that is held while it waits keeps nobody behind it waiting.
  for (int i = 0; i < 20; ++i) {
    ids.push_back(*scheduler.submit(requests[0], listener));
    want.push_back(want[0]);
    scheduler.hold(ids.back(), i < 19);
  }
  for (int i = 0; i < 1000 && scheduler.step(); ++i) {
  }
  EXPECT_EQ(listener.heard[ids.back()].ids, want[0].ids);
  EXPECT_FALSE(scheduler.busy());
  for (const RequestId id : ids) scheduler.hold(id, false);
  while (scheduler.step()) {
  }
  for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(listener.heard[ids[i]].ids, want[i].ids) << i;
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
