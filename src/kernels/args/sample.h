// Sampling: the next token of each row, and log-probabilities.
#pragma once

#include <cstdint>

#include "kernels/args/plain.h"

namespace moracle {

// How a row's token is drawn. Temperature, top-k, top-p and min-p apply in this order, each on what the one before
// kept; ties go to the lowest id.
struct SampleParams {
  double temperature = 0.0;  // 0: greedy; else logits are divided by it
  std::int64_t top_k = 0;    // 0: off; keep the k most likely
  double top_p = 1.0;        // keep the shortest most-likely prefix whose mass reaches it
  double min_p = 0.0;        // drop what is less likely than min_p times the most likely
  std::uint64_t seed = 0;    // of a request: of all its draws; of a row: of this draw
  // A positive logit of a token that occurred in prompt or answer is divided by it, a negative one multiplied; then
  // one is subtracted once a token of the answer, the other once an occurrence. Also at temperature 0. In f32; a finite
  // logit stays finite.
  double repetition_penalty = 1.0;  // 1: off
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;

  [[nodiscard]] constexpr bool penalizes() const {
    return repetition_penalty != 1.0 || presence_penalty != 0.0 || frequency_penalty != 0.0;
  }
  // Whether a token is the first by logit / temperature + gumbel(seed, id), of all tokens.
  [[nodiscard]] constexpr bool draws_from_all() const {
    return temperature > 0.0 && top_k == 0 && top_p >= 1.0 && min_p == 0.0 && !penalizes();
  }
};

struct TokenLogit {
  float logit = 0.0F;
  std::int32_t id = 0;

  [[nodiscard]] constexpr bool before(const TokenLogit& other) const {
    return logit > other.logit || (logit == other.logit && id < other.id);
  }
};

// A natural logarithm of the softmax of raw logits, in double, summed in the order of ids.
struct TokenLogprob {
  std::int32_t id = 0;
  double logprob = 0.0;
};

struct TokenCount {
  std::int32_t id = 0;        // once among those of a row
  std::int32_t answered = 0;  // times that the answer has it; 0: the prompt alone
};

struct LogitBias {
  std::int32_t id = 0;
  float bias = 0.0F;  // added to the logit, behind penalties
};

// A row chooses among all logits of its row, or among `candidates`, the highest-ranking that decide the choice: finite,
// best first, drawn already where draws_from_all(). Such a row has no penalty, bias, mask or log-probability.
struct SampleArgs {
  std::int32_t rows = 0;
  std::int32_t vocab = 0;
  const SampleParams* params = nullptr;     // [rows]
  const float* logits = nullptr;            // [any, vocab]; null: all rows have candidates
  const std::int32_t* logit_row = nullptr;  // [rows]: whose of `logits` a row's are; null: its own
  const TokenLogit* candidates = nullptr;
  std::int32_t most_candidates = 0;                // of a row
  const std::int32_t* candidates_start = nullptr;  // [rows + 1], or null: none
  const TokenCount* counts = nullptr;              // what penalties count
  const std::int32_t* counts_start = nullptr;      // [rows + 1], or null: none
  const LogitBias* bias = nullptr;
  const std::int32_t* bias_start = nullptr;  // [rows + 1], or null: none
  // [rows, mask_words(vocab)]: bit id % 32 of word id / 32 is 1 where the token may be chosen; null: all may.
  const std::uint32_t* mask = nullptr;
  // [rows]: above -1, this token is scored, and none is chosen; null: all rows choose.
  const std::int32_t* given = nullptr;
  // [rows]: how many likeliest tokens are wanted beside the log-probability of the row's; -1: no log-probability. Null:
  // no row wants any.
  const std::int32_t* tops = nullptr;
  std::int32_t most_tops = 0;  // of `tops`

  std::int32_t* ids = nullptr;  // [rows]; -1: a logit is NaN or +infinity, or none is finite
  double* logprobs = nullptr;   // [rows]
  TokenLogprob* top = nullptr;  // [rows, most_tops], best first, of equal ones the lower id first
};
static_assert(kPlain<SampleArgs>);

[[nodiscard]] constexpr std::int64_t mask_words(std::int64_t vocab) {
  return (vocab + 31) / 32;
}

}  // namespace moracle
