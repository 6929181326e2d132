#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace moracle {

namespace {

Error out_of_range(const char* option, const char* wanted, double found) {
  return Error{.code = "sampling.range", .where = option, .wanted = wanted, .found = std::to_string(found)};
}

}  // namespace

Result<> check(const SamplingOptions& options) {
  // Written so that NaN fails every test.
  if (!(options.temperature >= 0.0) || !std::isfinite(options.temperature))
    return out_of_range("temperature", "a finite number of at least 0", options.temperature);
  if (options.top_k < 0) return out_of_range("top_k", "at least 0", static_cast<double>(options.top_k));
  if (!(options.top_p > 0.0 && options.top_p <= 1.0))
    return out_of_range("top_p", "more than 0 and at most 1", options.top_p);
  if (!(options.min_p >= 0.0 && options.min_p <= 1.0))
    return out_of_range("min_p", "a number from 0 to 1", options.min_p);
  return Ok{};
}

void Sampler::keep_top_k() {
  const auto k = static_cast<std::size_t>(options_.top_k);
  if (k == 0 || k >= candidates_.size()) return;
  std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(k), candidates_.end(),
                   likelier);
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
                        candidates_.begin() + static_cast<std::ptrdiff_t>(sorted), candidates_.end(), likelier);
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
  float best = -INFINITY;
  std::int32_t best_id = -1;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == INFINITY) {
      return Error{.code = "numeric.nan",
                   .where = "logits[" + std::to_string(i) + "]",
                   .wanted = "a finite logit",
                   .found = std::isnan(logits[i]) ? "NaN" : "infinity",
                   .advice = "run `moracle verify` on the model"};
    }
    if (logits[i] > best) {
      best = logits[i];
      best_id = static_cast<std::int32_t>(i);
    }
  }
  if (best_id < 0) {
    return Error{.code = "numeric.nan", .where = "logits", .wanted = "a finite logit", .found = "none"};
  }
  if (options_.temperature == 0.0) return best_id;

  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] != -INFINITY) candidates_.push_back({logits[i], static_cast<std::int32_t>(i)});
  }
  keep_top_k();
  keep_top_p();
  // Drawing in one fixed order makes the outcome independent of how the filters happened to arrange the survivors.
  std::sort(candidates_.begin(), candidates_.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  weigh(best);
  return draw(options_.min_p);  // the best one weighs exp(0) = 1
}

}  // namespace moracle
