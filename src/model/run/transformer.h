// The forward pass that all families share: embedding, pre-norm residual layers, final norm, head.
#pragma once

#include <memory>
#include <vector>

#include "model/model.h"
#include "model/run/blocks.h"

namespace moracle {

struct TransformerLayer {
  Norm input_norm;
  std::unique_ptr<Mixer> mixer;
  Norm post_norm;
  std::unique_ptr<FeedForward> feed_forward;
};

// A token with what it is ranked by.
struct KeyedLogit {
  double key = 0.0;
  TokenLogit token{};
  [[nodiscard]] bool before(const KeyedLogit& other) const {
    return key > other.key || (key == other.key && token.id < other.token.id);
  }
};

class Transformer final : public Model {
 public:
  struct Parts {
    ModelInfo info{};
    Embedding embedding{};
    std::vector<TransformerLayer> layers{};
    Norm final_norm{};
    std::unique_ptr<PackedLinear> head{};
    std::vector<RopeSpec> ropes{};
    const VectorOps* ops = nullptr;
    std::shared_ptr<Device> device{};  // that computes the experts; null: the host does
  };
  // The pool outlives the model.
  Transformer(Parts parts, ThreadPool& pool);

  [[nodiscard]] const ModelInfo& info() const override { return parts_.info; }
  [[nodiscard]] Result<std::unique_ptr<SequenceState>> new_sequence() const override;
  Result<> reserve(std::int64_t tokens) override;
  [[nodiscard]] const Parts& parts() const { return parts_; }
  [[nodiscard]] std::size_t state_bytes(std::int64_t length) const { return state_layout_->bytes(length); }
  // What reserve(tokens) allocates.
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t tokens) const;
  // Also "model.batch" (spans that do not tile the ids, a state of another model or twice), "model.positions".
  // On any error every state is as before. Called from one thread at a time.
  Result<> forward(const Batch& batch, std::span<SequenceState* const> states, LogitRows rows,
                   std::vector<float>& logits) override;
  Result<> forward_top_k(const Batch& batch, std::span<SequenceState* const> states, const TopK& which,
                         std::vector<TokenLogit>& top) override;
  void time_phases(PhaseClock* clock) override { clock_ = clock; }

 private:
  struct Buffers;

  [[nodiscard]] std::size_t block_workspace(std::int64_t tokens) const;
  Result<> check(const Batch& batch, std::span<SequenceState* const> states);
  Result<> check_tokens(const Batch& batch, const SequenceSpan& span) const;
  void fill_rope_tables(const Batch& batch, std::span<const RopeTable> tables) const;
  Result<> run_layers(const ForwardContext& context, Buffers& buffers) const;
  // Appends the batch to the states, with finish(context, buffers) behind the last layer.
  template <class Finish>
  Result<> run_batch(const Batch& batch, std::span<SequenceState* const> states, const Finish& finish);
  // The normed rows that the head is to meet, to buffers.normed. Returns how many.
  std::int64_t gather_rows(const ForwardContext& context, LogitRows rows, Buffers& buffers) const;
  Result<> write_logits(const ForwardContext& context, LogitRows rows, Buffers& buffers,
                        std::vector<float>& logits) const;
  // Of the normed rows.
  Result<> multiply_head(const ForwardContext& context, LogitRows rows, std::int64_t row_count, const Buffers& buffers,
                         std::vector<float>& logits) const;
  Result<> write_top_k(const ForwardContext& context, const TopK& which, Buffers& buffers,
                       std::vector<TokenLogit>& top);
  // The first of logits [rows, vocabulary] that holds a NaN or an infinity; -1: none.
  [[nodiscard]] std::int64_t first_bad_row(const ForwardContext& context, std::int64_t rows,
                                           std::span<const float> logits) const;
  [[nodiscard]] Error numeric_error(std::int64_t token, const std::string& place) const;

  Parts parts_;
  ThreadPool& pool_;
  std::shared_ptr<const StateLayout> state_layout_;
  PageBuffer workspace_;
  std::int64_t reserved_tokens_ = 0;
  PhaseClock* clock_ = nullptr;
  // Kept between calls so that a call of a known size allocates nothing.
  std::vector<SequenceSpan> spans_;
  std::vector<const SequenceState*> seen_;
  std::vector<float> logits_;  // of forward_top_k
  std::vector<RankedOutput> ranked_;
  std::vector<KeyedLogit> keyed_;
};

}  // namespace moracle
