// What the tokens of one request are chosen by, and its state. Each request has its own, which the thread that drives
// its scheduler uses.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/random/random.h"
#include "generate/request.h"
#include "generate/sampling_fields.h"
#include "text/constrain/constraint.h"

namespace moracle {

// How many of the highest-ranking logits decide the choice, where those are few (kMaxHeadTopK); 0: all may. A penalty
// may lift any other logit above the largest, so then all do.
[[nodiscard]] std::int64_t deciding_logits(const SamplingOptions& options);
// Whether kMaxHeadTopK of the highest-ranking logits decide the choice as far as the last of them is dropped by min_p.
[[nodiscard]] bool min_p_decides(const SamplingOptions& options);

// The state of a request's draws: seed, counts of tokens, tokens so far. Choices depend on the request and its logits
// alone.
class TokenChooser {
 public:
  explicit TokenChooser(const Request& request);

  // How many of the highest logits of the next row suffice, by min_share() (Batch::Span); 0: all are needed.
  [[nodiscard]] std::int64_t wanted() const;
  [[nodiscard]] double min_share() const { return min_p_decides(params_) ? params_.min_p : 0.0; }
  // With draws from all tokens: what ranks them in the row that is computed next. Its temperature is the request's.
  [[nodiscard]] std::optional<std::uint64_t> seed() const;
  [[nodiscard]] double temperature() const { return params_.temperature; }

  // What the next token is chosen by, its seed that of this draw.
  [[nodiscard]] const SampleParams& params() const { return params_; }
  [[nodiscard]] std::span<const TokenCount> counts() const { return counts_; }
  [[nodiscard]] std::span<const LogitBias> bias() const { return bias_; }
  // Whether any token may come next; else narrow() clears the bits of those that may not (SampleArgs::mask).
  [[nodiscard]] bool allows_all() const {
    return (!least_ || least_->allows_all()) && (!output_ || output_->allows_all());
  }
  void narrow(std::span<std::uint32_t> mask) const;
  // How many likeliest tokens are wanted beside a log-probability; empty: no log-probability.
  [[nodiscard]] std::optional<std::int64_t> logprobs() const { return logprobs_; }

  // The token was chosen.
  void take(std::int32_t id);
  // Whether it ends the answer.
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  SampleParams params_;
  Random random_;
  StopRule ends_;
  std::vector<TokenCount> counts_;  // by id; empty without penalties
  std::vector<LogitBias> bias_;
  std::optional<std::int64_t> logprobs_;
  std::unique_ptr<Constraint> least_;   // of min_tokens; null: none
  std::unique_ptr<Constraint> output_;  // of Request::output
  std::int64_t tokens_ = 0;             // chosen so far
  bool ended_ = false;
};

}  // namespace moracle
