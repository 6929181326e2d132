// Which tokens of whom a step computes. A plan depends on its arguments alone, so that tests need no model; the thread
// that drives the scheduler makes it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "generate/batch/prefix_reuse.h"
#include "generate/batch/sequence.h"
#include "generate/scheduler.h"

namespace moracle {

// A part of so many more tokens.
[[nodiscard]] StepPart part_of(ScheduledSequence& sequence, std::int64_t tokens);

// Steps' worth of time of a chunk of prompts that keeps nobody from their next token: a cancelled request waits as
// long.
inline constexpr double kStepsAlone = 10;

class StepPlanner {
 public:
  StepPlanner(const SchedulerOptions& options, const PrefixReuse& prefixes) : options_(options), prefixes_(prefixes) {}

  // One token of each that decodes; prompts share what fits into the time of a step at `prefill_rate` tokens a second
  // (0: not known), the shortest first, at least two in turn. Where nobody decodes, the time is kStepsAlone steps: each
  // chunk reads the experts' weights again. A rest of fewer than `min_prefill` tokens goes along.
  void plan(std::span<ScheduledSequence* const> running, double prefill_rate, std::vector<StepPart>& parts) const;

 private:
  void plan_prompts(std::vector<ScheduledSequence*> prompts, std::int64_t budget, std::vector<StepPart>& parts) const;
  [[nodiscard]] std::int64_t prompt_budget(double prefill_rate, double step_ms) const;

  const SchedulerOptions& options_;
  const PrefixReuse& prefixes_;
};

}  // namespace moracle
