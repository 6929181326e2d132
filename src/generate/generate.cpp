#include "generate/generate.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/clock.h"
#include "generate/penalties.h"

namespace moracle {

namespace {

double rate(std::int64_t tokens, double seconds) {
  return tokens > 0 && seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
}

// Feeds tokens to one sequence and chooses the one that follows.
class Feeder {
 public:
  Feeder(Model& model, SequenceState& state, const SamplingOptions& sampling)
      : model_(model),
        state_(&state),
        which_{.k = deciding_logits(sampling)},
        draws_(draws_from_all(sampling)),
        sampler_(sampling) {
    if (penalizes(sampling)) penalties_.emplace(sampling);
    if (!draws_) return;
    seed_ = sampler_.next_seed();
    which_.seeds = {&seed_, 1};
    which_.temperature = sampling.temperature;
  }
  Feeder(const Feeder&) = delete;
  Feeder& operator=(const Feeder&) = delete;
  ~Feeder() = default;

  // Tokens that penalties count beside those that are chosen.
  void remember(std::span<const std::int32_t> ids) {
    if (penalties_) penalties_->add_prompt(ids);
  }

  Result<> feed(std::span<const std::int32_t> ids) {
    const std::int64_t begin = state_->length();
    positions_.resize(ids.size());
    std::iota(positions_.begin(), positions_.end(), static_cast<std::int32_t>(begin));
    const Batch::Span whole{.begin = 0, .count = static_cast<std::int64_t>(ids.size())};
    const Batch batch{.ids = ids, .positions = positions_, .spans = {&whole, 1}};
    if (which_.k > 0) return model_.forward_top_k(batch, {&state_, 1}, which_, top_);
    return model_.forward(batch, {&state_, 1}, LogitRows::last_of_each, logits_);
  }
  Result<std::int32_t> choose() {
    if (draws_) seed_ = sampler_.next_seed();
    if (which_.k > 0) return sampler_.sample(top_);
    if (penalties_) penalties_->apply(logits_);
    MORACLE_ASSIGN(const std::int32_t id, sampler_.sample(logits_));
    if (penalties_) penalties_->add_answer(id);
    return id;
  }

 private:
  Model& model_;
  SequenceState* state_;
  TopK which_;              // k = 0: all logits are asked for
  bool draws_;              // from all tokens
  std::uint64_t seed_ = 0;  // of the draw that the next call makes
  Sampler sampler_;
  std::optional<Penalties> penalties_;
  std::vector<std::int32_t> positions_;
  std::vector<TokenLogit> top_;
  std::vector<float> logits_;
};

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

Result<> prefill(Model& model, SequenceState& state, std::span<const std::int32_t> ids,
                 const std::function<bool()>& interrupted) {
  if (ids.empty()) return Ok{};
  MORACLE_TRY(model.reserve(std::min<std::int64_t>(std::ssize(ids), model.prefill_chunk())));
  Feeder feeder(model, state, {});
  while (!ids.empty() && !interrupted()) {
    const std::size_t count = std::min(static_cast<std::size_t>(model.prefill_chunk()), ids.size());
    MORACLE_TRY(feeder.feed(ids.first(count)));
    ids = ids.subspan(count);
  }
  return Ok{};
}

Result<Generation> generate(Model& model, SequenceState& state, std::span<const std::int32_t> prompt,
                            const GenerateOptions& options) {
  MORACLE_TRY(check(options.sampling));
  if (prompt.empty()) {
    return Error{.code = "prompt.empty", .wanted = "a prompt of at least one token", .found = "none"};
  }
  const auto prompt_tokens = static_cast<std::int64_t>(prompt.size());
  const std::int64_t most = model.info().max_context;
  const std::int64_t context = options.context > 0 ? std::min(options.context, most) : most;
  MORACLE_TRY(check_prompt_length(state.length() + prompt_tokens, context, 1));
  const std::int64_t room = context - state.length() - prompt_tokens;
  const std::int64_t chunk = model.prefill_chunk();
  MORACLE_TRY(model.reserve(std::min(prompt_tokens, chunk)));

  const auto interrupted = [&] { return options.interrupted && options.interrupted(); };
  Generation result;
  Feeder feeder(model, state, options.sampling);
  feeder.remember(options.before);
  feeder.remember(prompt);
  const Stopwatch prefill;
  for (std::int64_t begin = 0; begin < prompt_tokens; begin += chunk) {
    const std::int64_t count = std::min(chunk, prompt_tokens - begin);
    MORACLE_TRY(feeder.feed(prompt.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count))));
    result.timing.prefill_tokens += count;
    if (interrupted()) {
      result.finish = FinishReason::interrupted;
      return result;
    }
  }
  result.timing.prefill_s = prefill.seconds();

  const std::int64_t limit = std::min(options.max_tokens, room);
  result.ids.reserve(static_cast<std::size_t>(limit));
  const Stopwatch decode;
  while (static_cast<std::int64_t>(result.ids.size()) < limit) {
    MORACLE_ASSIGN(const std::int32_t id, feeder.choose());
    result.ids.push_back(id);
    if (options.on_token) options.on_token(id);
    if (std::binary_search(options.stop_ids.begin(), options.stop_ids.end(), id) ||
        (options.reached_stop && options.reached_stop())) {
      result.finish = FinishReason::stop;
      break;
    }
    if (interrupted()) {
      result.finish = FinishReason::interrupted;
      break;
    }
    if (static_cast<std::int64_t>(result.ids.size()) == limit) break;
    MORACLE_TRY(feeder.feed({&result.ids.back(), 1}));
    ++result.timing.decode_tokens;
  }
  result.timing.decode_s = decode.seconds();
  return result;
}

}  // namespace moracle
