#include "generate/token_chooser.h"

#include <algorithm>
#include <cmath>

#include "base/generic/ranking.h"
#include "base/random/gumbel.h"

namespace moracle {

namespace {

// The first of all tokens by logit / temperature + gumbel(seed, id), which forward_top_k finds without all logits.
std::int32_t draw_from_all(std::span<const float> logits, std::uint64_t seed, double temperature) {
  double best = -INFINITY;
  std::size_t chosen = 0;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const double scaled = static_cast<double>(logits[id]) / temperature;
    if (scaled + gumbel_bound(seed, id) < best) continue;
    const double key = scaled + gumbel(seed, id);
    if (key <= best) continue;
    best = key;
    chosen = id;
  }
  return static_cast<std::int32_t>(chosen);
}

}  // namespace

LogSoftmax::LogSoftmax(std::span<const float> logits) : logits_(logits) {
  const auto most = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - most);
  shift_ = most + std::log(sum);
}

void LogSoftmax::top(std::int64_t count, std::vector<TokenLogprob>& out) const {
  std::vector<TokenLogit> kept(std::min(static_cast<std::size_t>(count), logits_.size()));
  out.clear();
  if (kept.empty()) return;
  Ranking<TokenLogit> ranking(kept);
  for (std::size_t id = 0; id < logits_.size(); ++id) {
    ranking.offer({.logit = logits_[id], .id = static_cast<std::int32_t>(id)});
  }
  ranking.sort();
  for (const TokenLogit& token : kept) out.push_back({.id = token.id, .logprob = of(token.id)});
}

TokenChooser::TokenChooser(const Request& request)
    : sampling_(request.sampling),
      ends_(request),
      bias_(request.logit_bias),
      logprobs_(request.logprobs),
      draws_(draws_from_all(request.sampling)),
      sampler_(request.sampling) {
  if (penalizes(sampling_)) {
    penalties_.emplace(sampling_);
    penalties_->add_prompt(request.prompt);
  }
  if (draws_) seed_ = sampler_.next_seed();
}

bool TokenChooser::masks() const {
  return !ends_.allowed(tokens_) && !ends_.ids().empty();
}

std::int64_t TokenChooser::wanted() const {
  if (logprobs_ || !bias_.empty() || masks()) return 0;
  return min_p_decides(sampling_) ? kMaxHeadTopK : deciding_logits(sampling_);
}

std::optional<std::uint64_t> TokenChooser::seed() const {
  return draws_ ? std::optional(seed_) : std::nullopt;
}

void TokenChooser::count(std::int32_t id) {
  ended_ = ends_.at(id, tokens_++);
  if (draws_) seed_ = sampler_.next_seed();
  if (penalties_) penalties_->add_answer(id);
}

Result<ChosenToken> TokenChooser::choose(std::span<float> logits) {
  // Of the raw logits, before anything changes them.
  std::vector<float> raw;
  if (logprobs_) raw.assign(logits.begin(), logits.end());
  if (penalties_) penalties_->apply(logits);
  for (const LogitBias& bias : bias_) logits[static_cast<std::size_t>(bias.id)] += bias.bias;
  if (masks()) {
    for (const std::int32_t id : ends_.ids()) logits[static_cast<std::size_t>(id)] = -INFINITY;
  }
  ChosenToken chosen;
  if (draws_) {
    chosen.id = draw_from_all(logits, seed_, sampling_.temperature);
  } else {
    MORACLE_ASSIGN(chosen.id, sampler_.sample(logits));
  }
  if (logprobs_) {
    const LogSoftmax scores(raw);
    chosen.logprob = scores.of(chosen.id);
    scores.top(*logprobs_, top_);
  }
  count(chosen.id);
  return chosen;
}

Result<ChosenToken> TokenChooser::choose(std::span<const TokenLogit> top) {
  const ChosenToken chosen{.id = sampler_.sample(top)};
  count(chosen.id);
  return chosen;
}

}  // namespace moracle
