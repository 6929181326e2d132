// Chooses the next token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random/random.h"
#include "base/result.h"
#include "generate/sampling_fields.h"
#include "model/model.h"

namespace moracle {

// Whether any of the penalties is on.
[[nodiscard]] bool penalizes(const SamplingOptions& options);

// How many of the highest-ranking logits decide the choice, where those are few (kMaxHeadTopK); 0: all may. A penalty
// may lift any other logit above the largest, so then all do.
[[nodiscard]] std::int64_t deciding_logits(const SamplingOptions& options);
// Whether kMaxHeadTopK of the highest-ranking logits decide the choice as far as the last of them is dropped by min_p.
[[nodiscard]] bool min_p_decides(const SamplingOptions& options);
// Whether the choice is a draw from all tokens, which forward_top_k makes of a seed.
[[nodiscard]] bool draws_from_all(const SamplingOptions& options);

// The filters apply in the order temperature, top-k, top-p, min-p, each on what the one before kept. Ties go to the
// lowest id. The same seed and logits give the same tokens.
class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options) : options_(options), random_(options.seed) {}
  // Errors: "numeric.nan" when a logit is NaN or +infinity or all are -infinity.
  [[nodiscard]] Result<std::int32_t> sample(std::span<const float> logits);
  // The same choice from the highest-ranking that decide it, all finite, best first.
  [[nodiscard]] std::int32_t sample(std::span<const TokenLogit> top);
  // Of the next draw from all tokens.
  [[nodiscard]] std::uint64_t next_seed() { return random_.next(); }

 private:
  std::int32_t choose(float best);
  void keep_top_k();
  void weigh(float best);
  void keep_top_p();
  [[nodiscard]] std::int32_t draw(double threshold);

  SamplingOptions options_;
  Random random_;
  std::vector<TokenLogit> candidates_;
  std::vector<double> weights_;  // unnormalized probabilities of candidates_
};

}  // namespace moracle
