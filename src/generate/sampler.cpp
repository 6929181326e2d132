#include "generate/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

namespace moracle {

namespace {

struct Scan {
  float largest = -INFINITY;
  bool bad = false;  // NaN or +infinity is among them
};

// A vocabulary is looked through once a token, in chains that do not wait for each other: plain loops over them are
// what a compiler puts into vectors.
constexpr std::size_t kChains = 64;

Scan scan(std::span<const float> logits) {
  std::array<float, kChains> largest{};
  std::array<float, kChains> bad{};
  largest.fill(-INFINITY);
  for (std::size_t i = 0; i < logits.size(); i += kChains) {
    const float* const from = logits.data() + i;
    const std::size_t count = std::min(kChains, logits.size() - i);
    for (std::size_t j = 0; j < count; ++j) largest[j] = from[j] > largest[j] ? from[j] : largest[j];
    for (std::size_t j = 0; j < count; ++j) bad[j] += from[j] < INFINITY ? 0.0F : 1.0F;
  }
  return {.largest = *std::max_element(largest.begin(), largest.end()),
          .bad = std::any_of(bad.begin(), bad.end(), [](float found) { return found != 0.0F; })};
}

}  // namespace

bool penalizes(const SamplingOptions& options) {
  return options.repetition_penalty != 1.0 || options.presence_penalty != 0.0 || options.frequency_penalty != 0.0;
}

std::int64_t deciding_logits(const SamplingOptions& options) {
  if (penalizes(options)) return 0;
  if (options.temperature == 0.0 || draws_from_all(options)) return 1;
  return options.top_k <= kMaxHeadTopK ? options.top_k : 0;
}

bool min_p_decides(const SamplingOptions& options) {
  return options.temperature > 0.0 && (options.top_k == 0 || options.top_k > kMaxHeadTopK) && options.top_p >= 1.0 &&
         options.min_p > 0.0 && !penalizes(options);
}

bool draws_from_all(const SamplingOptions& options) {
  return options.temperature > 0.0 && options.top_k == 0 && options.top_p >= 1.0 && options.min_p == 0.0 &&
         !penalizes(options);
}

void Sampler::keep_top_k() {
  const auto k = static_cast<std::size_t>(options_.top_k);
  if (k == 0 || k >= candidates_.size()) return;
  std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(k), candidates_.end(),
                   [](const auto& a, const auto& b) { return a.before(b); });
  candidates_.resize(k);
}

void Sampler::weigh(float best) {
  weights_.resize(candidates_.size());
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    weights_[i] =
        std::exp((static_cast<double>(candidates_[i].logit) - static_cast<double>(best)) / options_.temperature);
  }
}

void Sampler::keep_top_p() {
  if (options_.top_p >= 1.0) return;
  const float best = std::max_element(candidates_.begin(), candidates_.end(), [](const auto& a, const auto& b) {
                       return a.logit < b.logit;
                     })->logit;
  weigh(best);
  double total = 0;
  for (const double weight : weights_) total += weight;
  // The kept prefix is usually short: sort ever larger heads until their mass suffices, not the whole vocabulary.
  double mass = 0;
  std::size_t kept = 0;
  std::size_t sorted = 0;
  while (kept < candidates_.size() && (kept == 0 || mass < options_.top_p * total)) {
    if (kept == sorted) {
      sorted = std::min(candidates_.size(), std::max<std::size_t>(64, sorted * 4));
      std::partial_sort(candidates_.begin() + static_cast<std::ptrdiff_t>(kept),
                        candidates_.begin() + static_cast<std::ptrdiff_t>(sorted), candidates_.end(),
                        [](const auto& a, const auto& b) { return a.before(b); });
    }
    mass += std::exp((static_cast<double>(candidates_[kept].logit) - static_cast<double>(best)) / options_.temperature);
    ++kept;
  }
  candidates_.resize(kept);
}

std::int32_t Sampler::draw(double threshold) {
  double total = 0;
  for (double& weight : weights_) {
    if (weight < threshold) weight = 0;
    total += weight;
  }
  const double target = random_.uniform() * total;
  double mass = 0;
  std::int32_t last = candidates_.front().id;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (weights_[i] <= 0) continue;
    mass += weights_[i];
    last = candidates_[i].id;
    if (target < mass) return last;
  }
  return last;  // rounding left the target at the very end
}

Result<std::int32_t> Sampler::sample(std::span<const float> logits) {
  const Scan seen = scan(logits);
  if (seen.bad) {
    const auto bad = std::find_if_not(logits.begin(), logits.end(), [](float logit) { return logit < INFINITY; });
    return Error{.code = "numeric.nan",
                 .where = "logits[" + std::to_string(bad - logits.begin()) + "]",
                 .wanted = "a finite logit",
                 .found = std::isnan(*bad) ? "NaN" : "infinity",
                 .advice = "run `moracle verify` on the model"};
  }
  const float best = seen.largest;
  if (best == -INFINITY) {
    return Error{.code = "numeric.nan", .where = "logits", .wanted = "a finite logit", .found = "none"};
  }
  if (options_.temperature == 0.0)
    return static_cast<std::int32_t>(std::find(logits.begin(), logits.end(), best) - logits.begin());

  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] != -INFINITY) candidates_.push_back({logits[i], static_cast<std::int32_t>(i)});
  }
  keep_top_k();
  return choose(best);
}

std::int32_t Sampler::sample(std::span<const TokenLogit> top) {
  if (options_.temperature == 0.0 || draws_from_all(options_)) return top.front().id;
  candidates_.assign(top.begin(), top.end());
  return choose(top.front().logit);
}

std::int32_t Sampler::choose(float best) {
  keep_top_p();
  // Drawing in one fixed order makes the outcome independent of how the filters happened to arrange the survivors.
  std::sort(candidates_.begin(), candidates_.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  weigh(best);
  return draw(options_.min_p);  // the best one weighs exp(0) = 1
}

}  // namespace moracle
