// One forward pass over the parts of a step, and the choice of their tokens.
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
  StepRunner(Model& model, ThreadPool& pool) : model_(model), pool_(pool), ops_(reference_ops()) {}

  // Gives each part its logits, or its error. They hold until the next call.
  void compute(std::span<StepPart> parts);
  // Gives the parts that have come to their end a token, and those of prompts that are scored their scores: all rows in
  // one operation, none of which depends on another.
  void choose(std::span<StepPart> parts);

 private:
  void add_rows(StepPart& part);
  void take_rows(StepPart& part, std::size_t& row) const;
  [[nodiscard]] std::int64_t row_of(std::span<const float> logits) const;

  Model& model_;
  ThreadPool& pool_;
  const Ops& ops_;
  // Kept between steps.
  std::vector<std::int32_t> ids_, positions_;
  std::vector<Batch::Span> spans_;
  std::vector<SequenceState*> states_;
  BatchResult result_;
  SampleBatch samples_;
};

}  // namespace moracle
