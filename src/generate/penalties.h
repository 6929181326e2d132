// Penalties on tokens that occurred already.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>

#include "generate/sampler.h"

namespace moracle {

// The repetition penalty, as in transformers, counts every token of the sequence, prompt and answer: a positive logit
// is divided by it, a negative one multiplied. Presence and frequency penalties, as OpenAI defines them, count the
// answer: one is subtracted once a token, the other once an occurrence. The repetition penalty is applied first.
// Arithmetic is in f32; a finite logit stays finite.
class Penalties {
 public:
  explicit Penalties(const SamplingOptions& options);

  // Tokens that stand before the answer.
  void add_prompt(std::span<const std::int32_t> ids);
  // One more token of the answer.
  void add_answer(std::int32_t id);
  // Changes the logits of a whole vocabulary.
  void apply(std::span<float> logits) const;

 private:
  float repetition_, presence_, frequency_;
  std::set<std::int32_t> seen_;
  std::map<std::int32_t, std::int64_t> answered_;  // times
};

}  // namespace moracle
