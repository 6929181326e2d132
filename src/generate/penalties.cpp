#include "generate/penalties.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace moracle {

namespace {

template <class Change>
void change(std::span<float> logits, std::int32_t id, const Change& changed) {
  if (id < 0 || static_cast<std::size_t>(id) >= logits.size()) return;
  float& logit = logits[static_cast<std::size_t>(id)];
  constexpr float kLargest = std::numeric_limits<float>::max();
  if (std::isfinite(logit)) logit = std::clamp(changed(logit), -kLargest, kLargest);
}

}  // namespace

Penalties::Penalties(const SamplingOptions& options)
    : repetition_(static_cast<float>(options.repetition_penalty)),
      presence_(static_cast<float>(options.presence_penalty)),
      frequency_(static_cast<float>(options.frequency_penalty)) {}

void Penalties::add_prompt(std::span<const std::int32_t> ids) {
  seen_.insert(ids.begin(), ids.end());
}

void Penalties::add_answer(std::int32_t id) {
  seen_.insert(id);
  ++answered_[id];
}

void Penalties::apply(std::span<float> logits) const {
  if (repetition_ != 1.0F) {
    for (const std::int32_t id : seen_) {
      change(logits, id, [&](float logit) { return logit < 0 ? logit * repetition_ : logit / repetition_; });
    }
  }
  if (presence_ == 0.0F && frequency_ == 0.0F) return;
  for (const auto& [id, times] : answered_) {
    change(logits, id, [&](float logit) { return logit - static_cast<float>(times) * frequency_ - presence_; });
  }
}

}  // namespace moracle
