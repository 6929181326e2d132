#include "verify/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/clock.h"
#include "checkpoint/safetensors_writer.h"

namespace moracle {

namespace {

// Logits of one forward call stay below this, however large vocabulary and window are.
constexpr std::int64_t kLogitBytes = std::int64_t{512} << 20;

double negative_log_likelihood(std::span<const float> logits, std::int32_t target) {
  const double best = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - best);
  return std::log(sum) - (static_cast<double>(logits[static_cast<std::size_t>(target)]) - best);
}

Result<> forward_piece(Model& model, SequenceState* state, std::span<const std::int32_t> ids,
                       std::vector<float>& logits) {
  std::vector<std::int32_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(state->length()));
  const Batch::Span whole{.begin = 0, .count = static_cast<std::int64_t>(ids.size())};
  return model.forward({.ids = ids, .positions = positions, .spans = {&whole, 1}}, {&state, 1}, LogitRows::all, logits);
}

// Scores one window and appends the losses of its tokens but the first.
Result<> score_window(Model& model, ThreadPool& pool, std::span<const std::int32_t> ids, std::int64_t piece,
                      std::vector<double>& losses) {
  MORACLE_ASSIGN(const auto state, model.new_sequence());
  const auto vocabulary = static_cast<std::size_t>(model.info().vocab_size);
  std::vector<float> logits;
  // The last token predicts nothing that is scored.
  const auto inputs = static_cast<std::int64_t>(ids.size()) - 1;
  for (std::int64_t begin = 0; begin < inputs; begin += piece) {
    const std::int64_t count = std::min(piece, inputs - begin);
    MORACLE_TRY(forward_piece(model, state.get(),
                              ids.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)), logits));
    const std::size_t first = losses.size();
    losses.resize(first + static_cast<std::size_t>(count));
    pool.parallel_for(count, [&](std::int64_t row, int) {
      const auto r = static_cast<std::size_t>(row);
      losses[first + r] = negative_log_likelihood(std::span(logits).subspan(r * vocabulary, vocabulary),
                                                  ids[static_cast<std::size_t>(begin) + r + 1]);
    });
  }
  return Ok{};
}

Error evaluation_error(const char* code, std::string wanted, std::int64_t found, const char* advice) {
  return Error{.code = code, .wanted = std::move(wanted), .found = std::to_string(found) + " tokens", .advice = advice};
}

}  // namespace

Result<> check_evaluation(std::int64_t tokens, std::int64_t window, std::int64_t context) {
  if (window < 2 || window > context) {
    return evaluation_error("eval.window", "a window of 2 to " + std::to_string(context) + " tokens", window,
                            "choose another --window");
  }
  if (tokens < 2) return evaluation_error("eval.short", "a text of at least 2 tokens", tokens, "give a longer text");
  return Ok{};
}

Result<Evaluation> evaluate(Model& model, ThreadPool& pool, std::span<const std::int32_t> ids,
                            const EvaluateOptions& options) {
  const ModelInfo& info = model.info();
  const auto tokens = static_cast<std::int64_t>(ids.size());
  MORACLE_TRY(check_evaluation(tokens, options.window, info.max_context));
  const std::int64_t row_bytes = std::max<std::int64_t>(1, info.vocab_size * 4);
  const std::int64_t piece = std::clamp<std::int64_t>(kLogitBytes / row_bytes, 1, options.window);
  MORACLE_TRY(model.reserve(std::min(piece, tokens)));

  const Stopwatch watch;
  Evaluation result;
  std::vector<double> losses;
  for (std::int64_t begin = 0; begin < tokens; begin += options.window) {
    if (options.interrupted && options.interrupted()) {
      result.interrupted = true;
      break;
    }
    const std::int64_t count = std::min(options.window, tokens - begin);
    MORACLE_TRY(score_window(model, pool, ids.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)),
                             piece, losses));
    result.tokens += count;
    if (options.on_progress) options.on_progress(result.tokens, tokens);
  }
  result.scored = static_cast<std::int64_t>(losses.size());
  const double sum = std::accumulate(losses.begin(), losses.end(), 0.0);
  result.mean_nll = result.scored > 0 ? sum / static_cast<double>(result.scored) : 0.0;
  result.perplexity = std::exp(result.mean_nll);
  result.seconds = watch.seconds();
  if (!std::isfinite(result.mean_nll)) {
    return Error{.code = "numeric.nan",
                 .wanted = "a finite loss",
                 .found = std::to_string(result.mean_nll),
                 .advice = "run `moracle verify` on the model"};
  }
  return result;
}

Result<std::vector<float>> prefill_logits(Model& model, std::span<const std::int32_t> ids) {
  if (ids.empty()) return Error{.code = "prompt.empty", .wanted = "at least one token id", .found = "none"};
  MORACLE_ASSIGN(const auto state, model.new_sequence());
  MORACLE_TRY(model.reserve(static_cast<std::int64_t>(ids.size())));
  std::vector<float> logits;
  MORACLE_TRY(forward_piece(model, state.get(), ids, logits));
  return logits;
}

Result<> write_logits(const std::filesystem::path& path, std::span<const float> logits, std::int64_t tokens,
                      std::int64_t vocabulary) {
  std::error_code code;
  // The writer renames over its target; done to a device that would replace the device by a file.
  if (std::filesystem::exists(path, code) && !std::filesystem::is_regular_file(path, code)) {
    return Error{.code = "file.write",
                 .file = path.string(),
                 .wanted = "a regular file or a name that is free",
                 .found = std::filesystem::is_directory(path, code) ? "a folder" : "a device or pipe"};
  }
  MORACLE_ASSIGN(auto writer, SafetensorsWriter::create(
                                  path, {{.name = "logits", .dtype = Dtype::f32, .shape = {tokens, vocabulary}}}));
  MORACLE_TRY(writer.write("logits", std::as_bytes(logits)));
  return writer.finish();
}

}  // namespace moracle
