#include "generate/batch/step_runner.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/generic/count.h"

namespace moracle {

void StepRunner::compute(std::span<StepPart> parts) {
  ids_.clear();
  positions_.clear();
  spans_.clear();
  states_.clear();
  for (const StepPart& part : parts) {
    const ScheduledSequence& sequence = *part.sequence;
    const std::int64_t begin = part.end - part.count;
    Batch::Span& span =
        spans_.emplace_back(Batch::Span{.begin = std::ssize(ids_), .count = part.count, .rows = part.rows});
    if (part.rows == 1) {
      span.top_k = sequence.chooser.wanted();
      span.min_share = sequence.chooser.min_share();
      span.seed = sequence.chooser.seed();
      span.temperature = sequence.chooser.temperature();
    }
    states_.push_back(sequence.state.get());
    for (std::int64_t i = begin; i < part.end; ++i) {
      ids_.push_back(sequence.ids[count(i)]);
      positions_.push_back(static_cast<std::int32_t>(i));
    }
  }
  const Result<> done = model_.run({.ids = ids_, .positions = positions_, .spans = spans_}, states_, result_);
  const std::int64_t vocabulary = model_.info().vocab_size;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    StepPart& part = parts[i];
    part.error = done.ok() ? std::move(result_.spans[i].error) : std::optional(done.error());
    if (part.error) continue;
    if (spans_[i].top_k > 0 && !result_.spans[i].all) {
      part.top = std::span(result_.top).subspan(result_.spans[i].top, count(std::min(spans_[i].top_k, vocabulary)));
    } else {
      part.logits = std::span(result_.logits).subspan(result_.spans[i].logits, count(part.rows * vocabulary));
    }
  }
}

// All rows on all threads: nothing of one depends on another.
void StepRunner::choose(std::span<StepPart> parts) const {
  const std::int64_t vocabulary = model_.info().vocab_size;
  pool_.parallel_for(std::ssize(parts), [&](std::int64_t index, int) {
    StepPart& part = parts[count(index)];
    ScheduledSequence& sequence = *part.sequence;
    if (part.error) return;
    if (sequence.scores_prompt() && sequence.told < sequence.prompt_size()) score_prompt(part);
    if (part.end < std::ssize(sequence.ids) || sequence.most == 0) return;
    Result<ChosenToken> chosen = part.logits.empty() ? sequence.chooser.choose(part.top)
                                                     : sequence.chooser.choose(part.logits.last(count(vocabulary)));
    if (chosen.ok()) {
      part.chosen = *chosen;
    } else {
      part.error = std::move(chosen).error();
    }
  });
}

// Row p says what token p + 1 is worth.
void StepRunner::score_prompt(StepPart& part) const {
  const ScheduledSequence& sequence = *part.sequence;
  const std::int64_t vocabulary = model_.info().vocab_size;
  const std::int64_t first_row = part.end - std::ssize(part.logits) / vocabulary;
  for (std::int64_t p = std::max(first_row, sequence.told - 1); p + 1 < std::min(part.end + 1, sequence.prompt_size());
       ++p) {
    const LogSoftmax scores(part.logits.subspan(count((p - first_row) * vocabulary), count(vocabulary)));
    ScoredPromptToken& scored = part.scored.emplace_back();
    scored.id = sequence.ids[count(p + 1)];
    scored.logprob = scores.of(scored.id);
    scores.top(*sequence.request.logprobs, scored.top);
  }
}

}  // namespace moracle
