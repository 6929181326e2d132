// Chooses and scores the tokens of one request.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "generate/penalties.h"
#include "generate/request.h"
#include "generate/sampler.h"
#include "model/model.h"

namespace moracle {

// The natural logarithms of a softmax, in double, summed in the order of ids.
class LogSoftmax {
 public:
  explicit LogSoftmax(std::span<const float> logits);
  [[nodiscard]] double of(std::int32_t id) const {
    return static_cast<double>(logits_[static_cast<std::size_t>(id)]) - shift_;
  }
  // The `count` most likely, best first, of equal ones the lower id first.
  void top(std::int64_t count, std::vector<TokenLogprob>& out) const;

 private:
  std::span<const float> logits_;
  double shift_ = 0.0;  // logarithm of the sum of all exponentials
};

struct ChosenToken {
  std::int32_t id = 0;
  std::optional<double> logprob{};
};

// The state of a request's draws: seed, penalties, tokens so far. Bits depend on the request and its logits alone.
class TokenChooser {
 public:
  explicit TokenChooser(const Request& request);

  // How many of the highest logits of the next row suffice, by min_share() (Batch::Span); 0: all are needed.
  [[nodiscard]] std::int64_t wanted() const;
  [[nodiscard]] double min_share() const { return min_p_decides(sampling_) ? sampling_.min_p : 0.0; }
  // With draws from all tokens: what ranks them in the row that is computed next. Its temperature is the request's.
  [[nodiscard]] std::optional<std::uint64_t> seed() const;
  [[nodiscard]] double temperature() const { return sampling_.temperature; }

  // The next token, from all logits, which it changes, or from the wanted() highest-ranking. Errors: those of
  // Sampler::sample.
  [[nodiscard]] Result<ChosenToken> choose(std::span<float> logits);
  [[nodiscard]] Result<ChosenToken> choose(std::span<const TokenLogit> top);
  // The alternatives of the last choice from all logits.
  [[nodiscard]] std::span<const TokenLogprob> top() const { return top_; }
  // Whether the last choice ends the answer.
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  [[nodiscard]] bool masks() const;
  void count(std::int32_t id);

  SamplingOptions sampling_;
  AnswerEnds ends_;
  std::vector<LogitBias> bias_;
  std::optional<std::int64_t> logprobs_;
  bool draws_;  // from all tokens
  Sampler sampler_;
  std::optional<Penalties> penalties_;
  std::uint64_t seed_ = 0;
  std::int64_t tokens_ = 0;  // chosen so far
  bool ended_ = false;
  std::vector<TokenLogprob> top_;
};

}  // namespace moracle
