// Times decode steps of several sequences at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "generate/session.h"

namespace moracle {

struct BenchSequencesOptions {
  std::vector<std::int64_t> sequences{};  // a row each
  std::int64_t prompt = 512;              // tokens of every sequence
  std::int64_t generate = 64;             // decode steps of a run
  std::int64_t runs = 5;                  // behind each other
  std::function<bool()> interrupted{};    // may be empty
};

struct BenchSequencesRow {
  std::int64_t sequences = 0;
  double prefill_tok_s = 0;  // prompts one after the other, median
  double decode_tok_s = 0;   // of all sequences together, median of the runs
  double least_tok_s = 0;
  double most_tok_s = 0;
};

// Greedy, each sequence behind a prompt of its own of pseudo-random ids, by the scheduler that serves requests. Ends
// early, with the rows that are whole, where `interrupted` says so. Errors: "model.context" when prompt and runs exceed
// the model's context, those of Scheduler::submit and Model::run.
Result<std::vector<BenchSequencesRow>> bench_sequences(Session& session, const BenchSequencesOptions& options);

}  // namespace moracle
