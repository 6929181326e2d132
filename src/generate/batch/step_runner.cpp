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

// Which of all rows of logits begins here.
std::int64_t StepRunner::row_of(std::span<const float> logits) const {
  return (logits.data() - result_.logits.data()) / model_.info().vocab_size;
}

// Row p of a prompt says what its token p + 1 is worth.
void StepRunner::add_rows(StepPart& part) {
  const ScheduledSequence& sequence = *part.sequence;
  if (sequence.scores_prompt() && sequence.told < sequence.prompt_size()) {
    const std::int64_t first_row = part.end - part.rows;
    for (std::int64_t p = std::max(first_row, sequence.told - 1);
         p + 1 < std::min(part.end + 1, sequence.prompt_size()); ++p) {
      const std::int32_t id = sequence.ids[count(p + 1)];
      part.scored.push_back({.id = id});
      samples_.score(id, row_of(part.logits) + p - first_row, *sequence.request.logprobs);
    }
  }
  if (!part.chooses()) return;
  if (part.logits.empty()) {
    samples_.choose(sequence.chooser, part.top);
  } else {
    samples_.choose(sequence.chooser, row_of(part.logits) + part.rows - 1);
  }
}

// In the order of add_rows.
void StepRunner::take_rows(StepPart& part, std::size_t& row) const {
  for (ScoredPromptToken& scored : part.scored) {
    scored.logprob = samples_.logprob(row).value_or(0.0);
    scored.top.assign(samples_.top(row).begin(), samples_.top(row).end());
    ++row;
  }
  if (!part.chooses()) return;
  part.chosen = {.id = samples_.id(row), .logprob = samples_.logprob(row), .top = samples_.top(row)};
  ++row;
  if (part.chosen.id >= 0) {
    part.sequence->chooser.take(part.chosen.id);
  } else {
    part.error = no_choice(part.logits.last(count(model_.info().vocab_size)));
  }
}

void StepRunner::choose(std::span<StepPart> parts) {
  samples_.begin(result_.logits.data(), model_.info().vocab_size);
  for (StepPart& part : parts) {
    if (!part.error) add_rows(part);
  }
  samples_.run(ops_, pool_);
  std::size_t row = 0;
  for (StepPart& part : parts) {
    if (!part.error) take_rows(part, row);
  }
}

}  // namespace moracle
