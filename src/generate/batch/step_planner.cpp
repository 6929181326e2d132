#include "generate/batch/step_planner.h"

#include <algorithm>
#include <utility>

namespace moracle {

StepPart part_of(ScheduledSequence& sequence, std::int64_t tokens) {
  StepPart part{.sequence = &sequence, .count = tokens, .end = sequence.state->length() + tokens};
  part.decodes = sequence.decodes();
  if (part.end == sequence.target() && sequence.most > 0) part.rows = 1;
  if (sequence.scores_prompt() && sequence.told < sequence.prompt_size()) part.rows = tokens;
  return part;
}

std::int64_t StepPlanner::prompt_budget(double prefill_rate, double step_ms) const {
  if (prefill_rate <= 0) return options_.max_prefill;
  const double fits = prefill_rate * step_ms / 1000;
  return std::clamp(static_cast<std::int64_t>(fits), options_.min_prefill, options_.max_prefill);
}

void StepPlanner::plan(std::span<ScheduledSequence* const> running, double prefill_rate,
                       std::vector<StepPart>& parts) const {
  parts.clear();
  std::vector<ScheduledSequence*> prompts;
  for (ScheduledSequence* const sequence : running) {
    if (sequence->decodes()) {
      parts.push_back(part_of(*sequence, 1));
    } else if (sequence->missing() > 0) {
      prompts.push_back(sequence);
    }
  }
  if (prompts.empty()) return;
  const double step_ms = parts.empty() ? options_.step_ms * kStepsAlone : options_.step_ms;
  plan_prompts(std::move(prompts), prompt_budget(prefill_rate, step_ms), parts);
}

void StepPlanner::plan_prompts(std::vector<ScheduledSequence*> prompts, std::int64_t budget,
                               std::vector<StepPart>& parts) const {
  // A step without a token is worth as many tokens as the least chunk.
  const auto rank = [&](const ScheduledSequence* each) {
    return std::pair(each->missing() - each->waited * options_.min_prefill, each->id);
  };
  std::sort(prompts.begin(), prompts.end(),
            [&](const ScheduledSequence* a, const ScheduledSequence* b) { return rank(a) < rank(b); });
  std::int64_t left = budget;
  // The second keeps a least chunk, where the first would take all.
  const std::int64_t kept = prompts.size() > 1 ? std::min(options_.min_prefill, prompts[1]->missing()) : 0;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::int64_t most = i == 0 ? std::max<std::int64_t>(1, left - kept) : left;
    const std::int64_t wanted = prefixes_.until_stop(*prompts[i]);
    // A rest of less than a least chunk goes along: alone it would read as many weights as a chunk.
    const std::int64_t tokens = most > 0 && wanted - most < options_.min_prefill ? wanted : std::min(wanted, most);
    prompts[i]->waited = tokens > 0 ? 0 : prompts[i]->waited + 1;
    if (tokens <= 0) continue;
    parts.push_back(part_of(*prompts[i], tokens));
    left -= tokens;
  }
}

}  // namespace moracle
