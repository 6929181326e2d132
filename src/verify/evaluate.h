// Perplexity, and logits as a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "model/model.h"

namespace moracle {

struct EvaluateOptions {
  std::int64_t window = 512;  // tokens; at least 2 and at most the model's context
  std::function<void(std::int64_t done, std::int64_t total)> on_progress{};  // tokens; may be empty
  std::function<bool()> interrupted{};                                       // asked between windows; may be empty
};

struct Evaluation {
  std::int64_t tokens = 0;
  std::int64_t scored = 0;
  double mean_nll = 0;  // natural logarithm
  double perplexity = 0;
  double seconds = 0;
  bool interrupted = false;  // the figures are of the windows that were finished
};

// Whether a text of so many tokens can be scored. Errors: "eval.window", "eval.short" (nothing to score).
Result<> check_evaluation(std::int64_t tokens, std::int64_t window, std::int64_t context);

// Cuts `ids` into consecutive windows that know nothing of each other; positions restart at 0 and the first token of
// each window is not scored. Log-softmax and mean in f64, summed in token order, so that the result does not depend on
// the number of threads. Errors: those of check_evaluation, "numeric.nan", those of forward.
Result<Evaluation> evaluate(Model& model, ThreadPool& pool, std::span<const std::int32_t> ids,
                            const EvaluateOptions& options);

// Logits [ids, vocabulary] of one prefill, f32, row-major. Errors: "prompt.empty", those of forward.
Result<std::vector<float>> prefill_logits(Model& model, std::span<const std::int32_t> ids);

// Writes tensor "logits" [tokens, vocabulary] F32. The file appears whole or not at all; an existing target must be a
// regular file. Errors: "file.write".
Result<> write_logits(const std::filesystem::path& path, std::span<const float> logits, std::int64_t tokens,
                      std::int64_t vocabulary);

}  // namespace moracle
