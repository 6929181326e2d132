#include "generate/generate.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "generate/scheduler.h"

namespace moracle {

namespace {

double rate(std::int64_t tokens, double seconds) {
  return tokens > 0 && seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
}

// Of a request that shares the model with no other: whole chunks, however long a step takes.
SchedulerOptions of_one_request(std::int64_t chunk) {
  constexpr double kNoBound = 1e9;
  return {.max_running = 1,
          .max_queue = 1,
          .step_ms = kNoBound,
          .min_prefill = 1,
          .max_prefill = chunk,
          .reuse_prefixes = false};
}

// Hears the one request, and ends it where its caller wants to stop.
class Listener final : public RequestSink {
 public:
  Listener(Scheduler& scheduler, const GenerateOptions& options, Generation& result)
      : scheduler_(scheduler), options_(options), result_(result) {}

  void on_token(RequestId id, const ScoredToken& token) override {
    if (result_.ids.empty()) {
      if (interrupted()) return stop(id, FinishReason::interrupted);
      result_.timing.prefill_s = watch_.seconds();
    }
    result_.ids.push_back(token.id);
    if (options_.on_token) options_.on_token(token.id);
    if (std::binary_search(options_.stop_ids.begin(), options_.stop_ids.end(), token.id)) return;
    if (options_.reached_stop && options_.reached_stop()) return stop(id, FinishReason::stop);
    if (interrupted()) stop(id, FinishReason::interrupted);
  }
  void on_end(RequestId /*id*/, const RequestOutcome& outcome) override {
    error_ = outcome.error;
    ended_ = true;
    if (outcome.end == RequestEnd::stop) result_.finish = FinishReason::stop;
    GenerationTiming& timing = result_.timing;
    if (result_.ids.empty()) return;
    timing.decode_s = watch_.seconds() - timing.prefill_s;
    timing.decode_tokens = std::ssize(result_.ids) - 1;
  }

  [[nodiscard]] bool interrupted() const { return options_.interrupted && options_.interrupted(); }
  [[nodiscard]] bool ended() const { return ended_; }
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

 private:
  void stop(RequestId id, FinishReason why) {
    result_.finish = why;
    scheduler_.cancel(id);
  }

  Scheduler& scheduler_;
  const GenerateOptions& options_;
  Generation& result_;
  Stopwatch watch_;
  bool ended_ = false;
  std::optional<Error> error_;
};

// Steps until the request has ended.
Result<Generation> run_alone(Model& model, ThreadPool& pool, Request request, const GenerateOptions& options) {
  const SequenceState& state = *request.state;
  const std::int64_t held = state.length();
  const std::int64_t prompt_tokens = std::ssize(request.prompt);
  const std::int64_t chunk = model.prefill_chunk();
  MORACLE_TRY(model.reserve(std::min(prompt_tokens - held, chunk)));
  Generation result;
  result.ids.reserve(static_cast<std::size_t>(*request.max_tokens));
  Scheduler scheduler(model, pool, of_one_request(chunk));
  Listener listener(scheduler, options, result);
  MORACLE_ASSIGN(const RequestId id, scheduler.submit(std::move(request), listener));
  while (!listener.ended()) {
    if (!scheduler.step() && !listener.ended()) {
      return Error{.code = "memory.allocate", .wanted = "memory to tell how a request ended", .found = "none"};
    }
    result.timing.prefill_tokens = std::min(state.length(), prompt_tokens) - held;
    if (listener.ended() || !result.ids.empty() || !listener.interrupted()) continue;
    result.finish = FinishReason::interrupted;
    scheduler.cancel(id);
  }
  if (listener.error()) return *listener.error();
  return result;
}

}  // namespace

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::interrupted:
      return "interrupted";
  }
  return "";
}

double GenerationTiming::prefill_tok_s() const {
  return rate(prefill_tokens, prefill_s);
}

double GenerationTiming::decode_tok_s() const {
  return rate(decode_tokens, decode_s);
}

Result<> check_prompt_length(std::int64_t tokens, std::int64_t context, std::int64_t answer) {
  if (tokens + answer <= context) return Ok{};
  return Error{.code = "model.context",
               .wanted = "at most " + std::to_string(context) + " tokens in all" +
                         (answer > 0 ? ", " + std::to_string(answer) + " of an answer among them" : ""),
               .found = std::to_string(tokens) + " tokens of prompt",
               .advice = "shorten the prompt"};
}

Result<> prefill(Model& model, ThreadPool& pool, SequenceState& state, std::span<const std::int32_t> prompt,
                 const std::function<bool()>& interrupted) {
  if (state.length() == std::ssize(prompt) || interrupted()) return Ok{};
  GenerateOptions options;
  options.interrupted = interrupted;
  MORACLE_TRY(
      run_alone(model, pool, {.prompt = {prompt.begin(), prompt.end()}, .max_tokens = 0, .state = &state}, options));
  return Ok{};
}

Result<Generation> generate(Model& model, ThreadPool& pool, SequenceState& state, std::span<const std::int32_t> prompt,
                            const GenerateOptions& options) {
  MORACLE_TRY(check(options.sampling));
  const std::int64_t prompt_tokens = std::ssize(prompt);
  if (state.length() >= prompt_tokens) return no_prompt();
  const std::int64_t most = model.info().max_context;
  const std::int64_t context = options.context > 0 ? std::min(options.context, most) : most;
  MORACLE_TRY(check_prompt_length(prompt_tokens, context, 1));
  return run_alone(model, pool,
                   {.prompt = {prompt.begin(), prompt.end()},
                    .sampling = options.sampling,
                    .max_tokens = std::min(options.max_tokens, context - prompt_tokens),
                    .end_ids = options.end_ids,
                    .stop_ids = options.stop_ids,
                    .output = options.output,
                    .state = &state},
                   options);
}

}  // namespace moracle
