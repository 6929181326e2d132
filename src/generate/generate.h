// One generation: a scheduler with one request.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "generate/generation_config.h"
#include "generate/sampling_fields.h"
#include "model/model.h"
#include "text/constrain/constraint.h"

namespace moracle {

enum class FinishReason : std::uint8_t {
  stop,         // an end-of-sequence token, or an end that the caller has seen
  length,       // max_tokens, or the context is full
  interrupted,  // the caller asked to stop
};
[[nodiscard]] std::string_view to_string(FinishReason reason);  // "stop", "length", "interrupted"

struct GenerateOptions {
  SamplingOptions sampling{};
  std::int64_t max_tokens = 512;
  std::vector<std::int32_t> stop_ids{};  // sorted; empty: never stops by itself
  std::int64_t context = 0;              // most tokens of prompt and answer; 0: what the model can hold
  // Holds the answer to a form, which then ends with one of `end_ids`, some of `stop_ids`; null: any answer.
  std::shared_ptr<const ConstraintSource> output{};
  std::vector<std::int32_t> end_ids{};
  // Called with each token as it is chosen, the stopping one included.
  std::function<void(std::int32_t id)> on_token{};
  // Asked after each token; true: it completes what the caller stops at.
  std::function<bool()> reached_stop{};
  // Asked between steps; true ends the generation with what there is.
  std::function<bool()> interrupted{};
};

struct GenerationTiming {
  double prefill_s = 0;
  std::int64_t prefill_tokens = 0;
  double decode_s = 0;
  std::int64_t decode_tokens = 0;  // tokens that were fed back one by one

  [[nodiscard]] double prefill_tok_s() const;
  [[nodiscard]] double decode_tok_s() const;
};

struct Generation {
  std::vector<std::int32_t> ids;  // generated, the stopping one included
  FinishReason finish = FinishReason::length;
  GenerationTiming timing;
};

// Error: "model.context", where a prompt of so many tokens and so many of an answer are more than `context`.
Result<> check_prompt_length(std::int64_t tokens, std::int64_t context, std::int64_t answer);

// `state` holds the first tokens of `prompt`; the others are fed to it in pieces of Model::prefill_chunk().

// Ends early, between two pieces, where `interrupted` says so. Errors: those of Scheduler::submit and Model::run.
Result<> prefill(Model& model, ThreadPool& pool, SequenceState& state, std::span<const std::int32_t> prompt,
                 const std::function<bool()>& interrupted);

// Errors: "prompt.empty" where `state` holds all of the prompt, "model.context" where the prompt leaves no room for one
// token, "numeric.nan", and those of Scheduler::submit and Model::run.
Result<Generation> generate(Model& model, ThreadPool& pool, SequenceState& state, std::span<const std::int32_t> prompt,
                            const GenerateOptions& options);

}  // namespace moracle
