#include "generate/token_chooser.h"

#include <algorithm>
#include <iterator>

#include "kernels/kernel.h"
#include "text/constrain/least_tokens.h"

namespace moracle {

namespace {

// The ids of a prompt, each once, by id.
std::vector<TokenCount> counts_of(std::vector<std::int32_t> ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  std::vector<TokenCount> counts;
  counts.reserve(ids.size());
  std::transform(ids.begin(), ids.end(), std::back_inserter(counts),
                 [](std::int32_t id) { return TokenCount{.id = id, .answered = 0}; });
  return counts;
}

}  // namespace

std::int64_t deciding_logits(const SamplingOptions& options) {
  if (options.penalizes()) return 0;
  if (options.temperature == 0.0 || options.draws_from_all()) return 1;
  return options.top_k <= kMaxHeadTopK ? options.top_k : 0;
}

bool min_p_decides(const SamplingOptions& options) {
  return options.temperature > 0.0 && (options.top_k == 0 || options.top_k > kMaxHeadTopK) && options.top_p >= 1.0 &&
         options.min_p > 0.0 && !options.penalizes();
}

TokenChooser::TokenChooser(const Request& request)
    : params_(request.sampling),
      random_(request.sampling.seed),
      ends_(request),
      bias_(request.logit_bias),
      logprobs_(request.logprobs) {
  params_.seed = random_.next();
  if (params_.penalizes()) counts_ = counts_of(request.prompt);
  if (request.min_tokens > 0)
    least_ = std::make_unique<LeastTokens>(std::vector(ends_.ids().begin(), ends_.ids().end()), request.min_tokens);
  if (request.output) output_ = request.output->start(request.end_ids);
}

// A complete output ends, however short it is.
void TokenChooser::narrow(std::span<std::uint32_t> mask) const {
  if (output_) output_->narrow(mask);
  if (least_ && !(output_ && output_->must_end())) least_->narrow(mask);
}

std::int64_t TokenChooser::wanted() const {
  if (logprobs_ || !bias_.empty() || !allows_all()) return 0;
  return min_p_decides(params_) ? kMaxHeadTopK : deciding_logits(params_);
}

std::optional<std::uint64_t> TokenChooser::seed() const {
  return params_.draws_from_all() ? std::optional(params_.seed) : std::nullopt;
}

void TokenChooser::take(std::int32_t id) {
  ended_ = ends_.at(id, tokens_++) || (output_ && output_->must_end());
  if (least_) least_->advance(id);
  if (output_) output_->advance(id);
  params_.seed = random_.next();
  if (!params_.penalizes()) return;
  auto place = std::lower_bound(counts_.begin(), counts_.end(), id,
                                [](const TokenCount& count, std::int32_t other) { return count.id < other; });
  if (place == counts_.end() || place->id != id) place = counts_.insert(place, {.id = id, .answered = 0});
  ++place->answered;
}

}  // namespace moracle
