// One forward pass over the parts of a step with the choice of their tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "generate/batch/sample_batch.h"
#include "generate/batch/sequence.h"
#include "kernels/ops.h"
#include "model/model.h"

namespace moracle {

class StepRunner {
 public:
  StepRunner(Model& model, ThreadPool& pool) : model_(model), pool_(pool), ops_(ref_ops()) {}

  // Gives each part its error, or what its tokens are chosen from, until the next call. Rows of all logits are chosen
  // and scored in the model's step.
  void compute(std::span<StepPart> parts);
  // Gives the parts that have come to their end a token, and those of prompts that are scored their scores. Where the
  // highest logits decide, it is chosen here: all rows in one operation, none of which depends on another.
  void choose(std::span<StepPart> parts);

 private:
  // Where the rows of a part are among samples: those of its prompt's tokens come before the choice.
  struct Rows {
    bool in_step = false;
    std::size_t first = 0;
  };
  [[nodiscard]] Batch::Span span_of(const StepPart& part) const;
  Rows add_step_rows(StepPart& part, std::size_t span);
  Rows add_choice(const StepPart& part);
  void take_rows(StepPart& part, const SampleBatch& samples, std::size_t row) const;

  Model& model_;
  ThreadPool& pool_;
  const Ops& ops_;
  // Kept between steps.
  std::vector<std::int32_t> ids_, positions_;
  std::vector<Batch::Span> spans_;
  std::vector<SequenceState*> states_;
  BatchResult result_;
  SampleBatch samples_;     // of the step
  SampleBatch choices_;     // behind it
  std::vector<Rows> rows_;  // of the parts
};

}  // namespace moracle
