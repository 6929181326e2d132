// The forward pass that all architectures share: embedding, pre-norm residual layers, final norm, head.
#pragma once

#include <memory>
#include <vector>

#include "base/memory.h"
#include "model/blocks/blocks.h"
#include "model/model.h"
#include "model/state/prefix_store.h"

namespace moracle {

struct TransformerLayer {
  Norm input_norm;
  std::unique_ptr<Mixer> mixer;
  Norm post_norm;
  std::unique_ptr<FeedForward> feed_forward;
};

class Transformer final : public Model {
 public:
  struct Parts {
    std::shared_ptr<const void> weights{};  // whose memory the numbers of all others are in
    ModelInfo info{};
    Embedding embedding{};
    std::vector<TransformerLayer> layers{};
    Norm final_norm{};
    std::unique_ptr<PackedLinear> head{};
    std::vector<Rope> ropes{};
    const Ops* ops = nullptr;
  };
  // The pool outlives the model.
  Transformer(Parts parts, ThreadPool& pool);

  // Makes the pool of all states. Errors: "memory.allocate".
  Result<> make_pool(std::size_t bytes);

  [[nodiscard]] const ModelInfo& info() const override { return parts_.info; }
  [[nodiscard]] Result<std::unique_ptr<SequenceState>> new_sequence() const override;
  Result<> reserve(std::int64_t tokens) override;
  [[nodiscard]] const Parts& parts() const { return parts_; }
  [[nodiscard]] std::size_t state_bytes(std::int64_t length) const override { return state_layout_->bytes(length); }
  // Kinds of blocks in the pool, each of which has addresses for all of it.
  [[nodiscard]] std::size_t state_kinds() const { return state_layout_->block_bytes().size(); }
  [[nodiscard]] StateMemory state_memory() const override;
  [[nodiscard]] PrefixStore* prefixes() override { return prefixes_.get(); }
  // What reserve(tokens) takes of the stage of a device that computes the experts, and what it allocates.
  [[nodiscard]] StageBytes stage_bytes(std::int64_t tokens) const;
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t tokens) const;
  // Also "model.batch" (spans that do not tile the ids, a state of another model or twice), "model.positions".
  // On any error every state is as before. Called from one thread at a time.
  Result<> forward(const Batch& batch, std::span<SequenceState* const> states, LogitRows rows,
                   std::vector<float>& logits) override;
  Result<> forward_top_k(const Batch& batch, std::span<SequenceState* const> states, const TopK& which,
                         std::vector<TokenLogit>& top) override;
  Result<> run(const Batch& batch, std::span<SequenceState* const> states, BatchResult& result) override;
  void time_phases(PhaseClock* clock) override { clock_ = clock; }

 private:
  struct Buffers;

  // Rows of the head that are ranked alike.
  struct Ranks {
    std::size_t first = 0;  // of head_rows_
    std::size_t rows = 0;
    std::int64_t k = 1;
    bool seeded = false;
    double temperature = 1.0;
  };
  // A row that the head meets.
  struct HeadRow {
    std::size_t span = 0;    // of spans_
    std::int64_t token = 0;  // of the batch
  };

  [[nodiscard]] std::size_t block_workspace(std::int64_t tokens) const;
  // Fills spans_ and wanted_.
  Result<> check(const Batch& batch, std::span<SequenceState* const> states);
  Result<> check_tokens(const Batch& batch, const SequenceSpan& span) const;
  // A batch of those spans that have no error yet, which spans_ and wanted_ then are.
  Batch without_failed(const Batch& batch, const BatchResult& result);
  // All spans are held, or none.
  Result<> run_whole(const Batch& batch, std::span<SequenceState* const> states, BatchResult& result);
  // Everything but holding what was computed.
  Result<> compute(const Batch& batch, std::span<SequenceState* const> states, BatchResult& result);
  // One call's memory; with a counting arena it tells how much that is.
  Buffers lay_out(BumpArena& arena, std::int64_t tokens) const;
  class SpanTally;
  void run_layers(const ForwardContext& context, SpanTally& tally, Buffers& buffers) const;
  void tell_unrouted(const DeviceStatus& status, BatchResult& result) const;
  void find_bad_tokens(const ForwardContext& context, const Buffers& buffers, BatchResult& result);
  // Lists the rows that the head is to meet: those whose logits are wanted, then those that are ranked, alike ones
  // together.
  void list_head_rows(BatchResult& result);
  // Brings them, normed, to buffers.normed.
  void gather_rows(const ForwardContext& context, Buffers& buffers);
  // Logits of head_rows_[first, first + rows); a NaN or an infinity in them ends its span.
  void gemm_head(const ForwardContext& context, const Buffers& buffers, std::size_t first, std::size_t rows,
                 std::vector<float>& logits, BatchResult& result);
  void write_top_k(const ForwardContext& context, const Buffers& buffers, const Ranks& ranks, TokenLogit* top,
                   BatchResult& result);
  // All logits of ranked rows where those of the top are too few (Batch::Span::min_share).
  void complete_rows(const ForwardContext& context, const Buffers& buffers, BatchResult& result);
  // The first error of a span is kept.
  void fail(std::size_t span, std::int64_t token, const std::string& place, BatchResult& result) const;
  [[nodiscard]] std::size_t span_of(std::int64_t token) const;

  Parts parts_;
  ThreadPool& pool_;
  std::shared_ptr<Stream> stream_;  // of the host
  std::shared_ptr<const StateLayout> state_layout_;
  std::shared_ptr<BlockLedger> blocks_;
  std::unique_ptr<PrefixStore> prefixes_;
  std::int64_t most_held_ = 0;  // positions of one sequence that the pool has room for
  PageBuffer workspace_;
  std::int64_t reserved_tokens_ = 0;
  PhaseClock* clock_ = nullptr;
  // Kept between calls so that a call of a known size allocates nothing.
  std::vector<SequenceSpan> spans_;
  std::vector<Batch::Span> wanted_;   // of spans_
  std::vector<std::size_t> indices_;  // of spans_ in what was asked for
  std::vector<std::int32_t> ids_, positions_;
  std::vector<const SequenceState*> seen_;
  std::vector<Batch::Span> asked_;  // of forward and forward_top_k
  BatchResult result_;              // of theirs
  std::vector<HeadRow> head_rows_;
  std::vector<std::int32_t> gathered_;  // tokens of head_rows_
  std::size_t logit_rows_ = 0;          // the first ones of head_rows_
  std::vector<Ranks> ranks_;
  std::vector<std::uint64_t> seeds_;  // of head_rows_
  std::vector<std::uint8_t> bad_;     // by token or row
  std::vector<float> logits_;         // that are ranked
  std::vector<RankedOutput> ranked_;
  std::vector<std::byte> rank_workspace_;
};

}  // namespace moracle
