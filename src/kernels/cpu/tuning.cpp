#include "kernels/cpu/tuning.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "base/checked.h"
#include "base/memory.h"

namespace moracle::cpu {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLeastGain = 0.03;
constexpr double kTrialSeconds = 0.06;  // at most, once there are kLeastPairs
constexpr std::size_t kLeastPairs = 7;

// What else was tried and is not worth its time is in docs/log.
constexpr TuningCandidate kCandidates[] = {
    {"streams", "many", "one", 1, 0, [](Tuning& tuning) { tuning.streams = true; }},
    {"ahead", "on", "off", 16, 0, [](Tuning& tuning) { tuning.ahead = true; }},
    {"distance", "4096", "8192", 1, 0, [](Tuning& tuning) { tuning.distance = 4096; }},
    {"run_from", "6", "10", 8, 10, [](Tuning& tuning) { tuning.run_from = 6; }},
    {"run_from", "never", "24", 32, 24, [](Tuning& tuning) { tuning.run_from = kNoRuns; }},
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Calls of one layer, each on the experts behind those of the call before: a layer is larger than the caches, so when
// an expert's turn comes again it has to come from memory.
class Calls {
 public:
  static Result<Calls> make(const TunedLayer& layer, const PackOptions& options, std::int64_t most_tokens) {
    Calls calls(layer, options);
    calls.top_k_ = std::clamp<std::int64_t>(options.top_k, 1, layer.experts);
    MORACLE_ASSIGN(calls.workspace_, PageBuffer::allocate(layer.packed.workspace_bytes(most_tokens, calls.top_k_,
                                                                                       options.pool.threads())));
    calls.x_.resize(static_cast<std::size_t>(most_tokens * layer.hidden));
    calls.out_.resize(calls.x_.size());
    std::uint32_t state = 1;
    for (float& value : calls.x_) {  // what the values are is of no account, as long as they differ
      state = state * 1664525U + 1013904223U;
      value = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31F;
    }
    const auto choices = static_cast<std::size_t>(most_tokens * calls.top_k_);
    calls.ids_.resize(choices);
    calls.weights_.assign(choices, 1.0F / static_cast<float>(calls.top_k_));
    return calls;
  }

  // Seconds of one call in which each expert that is hit meets `tokens` tokens.
  double time(const Tuning& tuning, std::int64_t tokens) {
    for (std::int64_t j = 0; j < top_k_; ++j) {
      for (std::int64_t t = 0; t < tokens; ++t)
        ids_[static_cast<std::size_t>(t * top_k_ + j)] = narrow<std::int32_t>((next_ + j) % layer_.experts);
    }
    next_ = (next_ + top_k_) % layer_.experts;
    const ExpertsInput input{
        .tokens = tokens, .top_k = top_k_, .x = x_.data(), .ids = ids_.data(), .weights = weights_.data()};
    const RunContext context{.pool = options_.pool, .workspace = {workspace_.data(), workspace_.size()}};
    const auto start = Clock::now();
    layer_.run(tuning, context, input, out_.data());
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

 private:
  Calls(const TunedLayer& layer, const PackOptions& options) : layer_(layer), options_(options) {}

  const TunedLayer& layer_;
  const PackOptions& options_;
  PageBuffer workspace_;
  std::vector<float> x_, out_, weights_;
  std::vector<std::int32_t> ids_;
  std::int64_t top_k_ = 1;
  std::int64_t next_ = 0;
};

bool applies(const TuningCandidate& candidate, const TunedLayer& layer) {
  return candidate.run_from == 0 || candidate.run_from == layer.run_from;
}

// More pairs would hardly change it.
bool settled(const TuningVerdict& verdict) {
  return verdict.taken || verdict.gain + verdict.noise < 1 + kLeastGain;
}

TuningVerdict compare(Calls& calls, const Tuning& in_force, const Tuning& candidate, std::int64_t tokens) {
  std::vector<TimedPair> pairs;
  TuningVerdict verdict;
  calls.time(in_force, tokens);  // pages and units wake up
  const auto start = Clock::now();
  const auto late = [&] { return std::chrono::duration<double>(Clock::now() - start).count() > kTrialSeconds; };
  while (pairs.size() < kLeastPairs || (!settled(verdict) && !late())) {
    TimedPair pair;
    const bool candidate_first = pairs.size() % 2 == 1;
    if (candidate_first) pair.candidate = calls.time(candidate, tokens);
    pair.in_force = calls.time(in_force, tokens);
    if (!candidate_first) pair.candidate = calls.time(candidate, tokens);
    pairs.push_back(pair);
    verdict = judge(pairs);
  }
  return verdict;
}

// The value of a candidate's setting that the trials so far have put in force.
std::string value_in_force(const TuningCandidate& candidate, const TuningTrials& trials) {
  std::string value(candidate.otherwise);
  for (const TuningTrial& trial : trials) {
    if (trial.taken && trial.setting == candidate.setting) value = trial.value;
  }
  return value;
}

TuningTrials measure(const TunedLayer& layer, const PackOptions& options) {
  TuningTrials trials;
  std::int64_t most_tokens = 1;
  for (const TuningCandidate& candidate : kCandidates) most_tokens = std::max(most_tokens, candidate.tokens);
  Result<Calls> calls = Calls::make(layer, options, most_tokens);
  if (!calls.ok()) return trials;  // the memory is wanted elsewhere
  Tuning in_force;
  for (const TuningCandidate& candidate : kCandidates) {
    if (!applies(candidate, layer)) continue;
    Tuning tried = in_force;
    candidate.apply(tried);
    const TuningVerdict verdict = compare(*calls, in_force, tried, candidate.tokens);
    trials.push_back({.setting = std::string(candidate.setting),
                      .value = std::string(candidate.value),
                      .against = value_in_force(candidate, trials),
                      .tokens = candidate.tokens,
                      .gain = verdict.gain,
                      .noise = verdict.noise,
                      .taken = verdict.taken});
    if (verdict.taken) in_force = tried;
  }
  return trials;
}

// Null: the trials name a setting or a value that there is not.
std::optional<Tuning> tuning_of(const TuningTrials& trials, const TunedLayer& layer) {
  Tuning tuning;
  for (const TuningTrial& trial : trials) {
    const auto* const candidate =
        std::find_if(std::begin(kCandidates), std::end(kCandidates), [&](const TuningCandidate& known) {
          return known.setting == trial.setting && known.value == trial.value && applies(known, layer);
        });
    if (candidate == std::end(kCandidates)) return std::nullopt;
    if (trial.taken) candidate->apply(tuning);
  }
  return tuning;
}

// What linears take over: 0 until something is chosen.
std::atomic<std::int64_t>& linear_distance() {
  static std::atomic<std::int64_t> value{0};
  return value;
}
std::atomic<bool>& linear_streams() {
  static std::atomic<bool> value{false};
  return value;
}

Tuning chosen(const Tuning& tuning) {
  if (linear_distance().load() == 0) choose_for_linears(tuning);
  return tuning;
}

}  // namespace

bool Tuning::together(std::int64_t tokens) const {
  return tokens <= kWideTiles ? streams : ahead;
}

std::span<const TuningCandidate> tuning_candidates() {
  return kCandidates;
}

TuningVerdict judge(std::span<const TimedPair> pairs) {
  std::vector<double> gains;
  for (const TimedPair& pair : pairs) {
    if (pair.in_force > 0 && pair.candidate > 0) gains.push_back(pair.in_force / pair.candidate);
  }
  if (gains.empty()) return {};
  TuningVerdict verdict{.gain = median(gains)};
  std::vector<double> distances;
  distances.reserve(gains.size());
  for (const double gain : gains) distances.push_back(std::fabs(gain - verdict.gain));
  // Of normal noise, the median distance is 0.6745 standard deviations, and a median of n values has an error of
  // sqrt(pi / 2 / n) standard deviations.
  constexpr double kDeviations = 1.0 / 0.6745;
  constexpr double kMedianError = 1.2533;
  verdict.noise = 3 * kMedianError * kDeviations * median(distances) / std::sqrt(static_cast<double>(gains.size()));
  verdict.taken = verdict.gain > 1 + std::max(verdict.noise, kLeastGain);
  return verdict;
}

Tuning tune(const TunedLayer& layer, const PackOptions& options) {
  if (options.tunings == nullptr) return {};
  if (const TuningTrials* const kept = options.tunings->recall(options.kind)) {
    if (const auto tuning = tuning_of(*kept, layer)) return chosen(*tuning);
  }
  if (narrow<std::int64_t>(layer.packed.bytes()) < kLeastTunedBytes) return {};
  const auto start = Clock::now();
  TuningTrials trials = measure(layer, options);
  const std::chrono::duration<double> seconds = Clock::now() - start;
  const Tuning tuning = tuning_of(trials, layer).value_or(Tuning{});
  if (!trials.empty()) options.tunings->keep(options.kind, std::move(trials), seconds.count());
  return chosen(tuning);
}

Tuning tuning_of_linears() {
  const bool many = linear_streams().load(std::memory_order_relaxed);
  const std::int64_t distance = linear_distance().load(std::memory_order_relaxed);
  return {.streams = many, .ahead = many, .run_from = 0, .distance = distance == 0 ? kDistance : distance};
}

void choose_for_linears(const Tuning& tuning) {
  linear_streams().store(tuning.streams);
  linear_distance().store(tuning.distance);
}

}  // namespace moracle::cpu
