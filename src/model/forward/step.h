// The forward pass that all architectures share: embedding, pre-norm residual layers, final norm, head. It enqueues and
// reads nothing, so that it can be captured and replayed at the addresses of its call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/forward/inputs.h"
#include "model/forward/parts.h"
#include "model/forward/result.h"

namespace moracle {

// One call, in memory of the stream's device.
struct StepCall {
  InputSize size{};
  ForwardInputs::Arrays in{};
  ForwardResult::Arrays out{};
  BatchState state{};
  const ExpertCounts* counts = nullptr;  // null: nobody asks
  std::int64_t counted = 0;              // numbers of them
  std::size_t logit_rows = 0;            // the first ones of the head's
  float* logits = nullptr;               // [logit_rows, vocab_size]
  std::span<const Ranks> ranks{};        // of the other rows
  std::span<std::byte> workspace{};      // of workspace_bytes()
  SampleArgs samples{};                  // without logits
  std::span<std::byte> scratch{};        // of rank_bytes() and sample_bytes()
  PhaseClock* clock = nullptr;           // null: nobody asks
};

class ForwardStep {
 public:
  // Enqueues on streams of the parts' device; of the host, on a pool of `threads`.
  ForwardStep(const TransformerParts& parts, int threads);

  [[nodiscard]] std::size_t workspace_bytes(std::int64_t tokens) const;
  // What ranks take beside the workspace; 0 without ranks. `with_logits`: which the call has not written.
  [[nodiscard]] std::size_t rank_bytes(std::span<const Ranks> ranks, bool with_logits) const;
  // The same of samples, by their sizes.
  [[nodiscard]] std::size_t sample_bytes(SampleArgs samples) const;
  void enqueue(Stream& stream, const StepCall& call);
  // Chooses and scores tokens of some of the call's samples, whose rows are among `logits`.
  void enqueue_samples(Stream& stream, const StepCall& call, std::size_t first, std::size_t rows,
                       const float* logits) const;
  // Ranks rows whose logits, [rows, vocab_size], the call has written. Their scratch is that of rank_bytes().
  void enqueue_ranks(Stream& stream, const StepCall& call, std::span<const Ranks> ranks) const;
  // Logits of further rows of the call that was enqueued last, [rows, vocab_size], and their flags.
  void enqueue_head(Stream& stream, const StepCall& call, std::size_t first, std::size_t rows, float* logits);

 private:
  struct Buffers;
  class ResidualStream;
  struct RankBuffers;

  // One call's memory; with a counting arena and no `ropes` it tells how much that is.
  Buffers lay_out(BumpArena& arena, std::int64_t tokens, std::span<RopeTableArgs> ropes) const;
  [[nodiscard]] std::size_t block_workspace(std::int64_t tokens) const;
  [[nodiscard]] RankBuffers lay_out(BumpArena& arena, const RankArgs& args) const;
  [[nodiscard]] RankArgs rank_args(const Ranks& ranks) const;
  // x[rows, hidden] *= factor
  void scale(const ForwardContext& context, std::int64_t rows, float factor, float* x) const;
  void make_ropes(const ForwardContext& context, const std::int32_t* positions);
  void run_layers(const ForwardContext& context, const Buffers& buffers) const;
  // Brings the rows that the head meets, normed, to buffers.normed.
  void gather_rows(const ForwardContext& context, const StepCall& call, const Buffers& buffers) const;
  void run_head(const ForwardContext& context, const StepCall& call, const Buffers& buffers, std::size_t first,
                std::size_t rows, float* logits) const;
  void rank(const ForwardContext& context, const StepCall& call, const Buffers& buffers, const Ranks& ranks) const;
  // The same of logits, with the workspace of the operation.
  void rank_rows(const RunContext& context, const StepCall& call, const Ranks& ranks, const float* logits) const;

  const TransformerParts& parts_;
  int threads_;
  std::vector<RopeTableArgs> rope_args_;  // of the call
  std::vector<RopeTable> ropes_;
};

}  // namespace moracle
