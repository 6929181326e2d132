#include "generate/batch/step_runner.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/generic/count.h"

namespace moracle {

Batch::Span StepRunner::span_of(const StepPart& part) const {
  const TokenChooser& chooser = part.sequence->chooser;
  Batch::Span span{.begin = std::ssize(ids_), .count = part.count, .rows = part.rows};
  if (part.rows == 1) {
    span.top_k = model_.ranks_for_less() ? chooser.wanted() : 0;
    span.min_share = chooser.min_share();
    span.seed = chooser.seed();
    span.temperature = chooser.temperature();
  }
  return span;
}

void StepRunner::compute(std::span<StepPart> parts) {
  const std::int64_t vocabulary = model_.info().vocab_size;
  ids_.clear();
  positions_.clear();
  spans_.clear();
  states_.clear();
  rows_.clear();
  samples_.begin(vocabulary);
  for (StepPart& part : parts) {
    const ScheduledSequence& sequence = *part.sequence;
    spans_.push_back(span_of(part));
    states_.push_back(sequence.state.get());
    for (std::int64_t i = part.end - part.count; i < part.end; ++i) {
      ids_.push_back(sequence.ids[count(i)]);
      positions_.push_back(static_cast<std::int32_t>(i));
    }
    rows_.push_back(spans_.back().top_k > 0 ? Rows{} : add_step_rows(part, spans_.size() - 1));
  }
  const Result<> done = model_.run({.ids = ids_,
                                    .positions = positions_,
                                    .spans = spans_,
                                    .samples = samples_.empty() ? nullptr : &samples_.samples(),
                                    .logits = false},
                                   states_, result_);
  samples_.take(result_);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    StepPart& part = parts[i];
    part.error = done.ok() ? std::move(result_.spans[i].error) : std::optional(done.error());
    if (part.error) continue;
    if (spans_[i].top_k > 0 && !result_.spans[i].all) {
      part.top = std::span(result_.top).subspan(result_.spans[i].top, count(std::min(spans_[i].top_k, vocabulary)));
    } else if (result_.rows || result_.spans[i].all) {
      part.logits = std::span(result_.logits).subspan(result_.spans[i].logits, count(part.rows * vocabulary));
    }
  }
}

// Row p of a prompt says what its token p + 1 is worth.
StepRunner::Rows StepRunner::add_step_rows(StepPart& part, std::size_t span) {
  const ScheduledSequence& sequence = *part.sequence;
  Rows rows{.in_step = true, .first = samples_.size()};
  if (sequence.scores_prompt() && sequence.told < sequence.prompt_size()) {
    const std::int64_t first_row = part.end - part.rows;
    for (std::int64_t p = std::max(first_row, sequence.told - 1);
         p + 1 < std::min(part.end + 1, sequence.prompt_size()); ++p) {
      const std::int32_t id = sequence.ids[count(p + 1)];
      part.scored.push_back({.id = id});
      samples_.score(id, {.span = span, .row = p - first_row}, *sequence.request.logprobs);
    }
  }
  if (part.chooses()) samples_.choose(sequence.chooser, {.span = span, .row = part.rows - 1});
  return rows;
}

StepRunner::Rows StepRunner::add_choice(const StepPart& part) {
  const TokenChooser& chooser = part.sequence->chooser;
  Rows rows{.first = choices_.size()};
  if (part.logits.empty()) {
    choices_.choose(chooser, part.top);
  } else {
    const std::int64_t row = (part.logits.data() - result_.logits.data()) / model_.info().vocab_size;
    choices_.choose(chooser, {.row = row});
  }
  return rows;
}

void StepRunner::take_rows(StepPart& part, const SampleBatch& samples, std::size_t row) const {
  for (ScoredPromptToken& scored : part.scored) {
    scored.logprob = samples.logprob(row).value_or(0.0);
    scored.top.assign(samples.top(row).begin(), samples.top(row).end());
    ++row;
  }
  if (!part.chooses()) return;
  part.chosen = {.id = samples.id(row), .logprob = samples.logprob(row), .top = samples.top(row)};
  if (part.chosen.id >= 0) {
    part.sequence->chooser.take(part.chosen.id);
  } else {
    part.error = no_choice(part.logits.empty() ? part.logits : part.logits.last(count(model_.info().vocab_size)));
  }
}

void StepRunner::choose(std::span<StepPart> parts) {
  choices_.begin(model_.info().vocab_size);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].error && !rows_[i].in_step && parts[i].chooses()) rows_[i] = add_choice(parts[i]);
  }
  choices_.run(result_.logits.data(), ops_, pool_);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].error) take_rows(parts[i], rows_[i].in_step ? samples_ : choices_, rows_[i].first);
  }
}

}  // namespace moracle
