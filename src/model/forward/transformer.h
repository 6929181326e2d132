// A model whose layers are mixers and feed-forwards on a residual stream: it checks batches, keeps the states, and runs
// a forward step a call.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/forward/step.h"
#include "model/state/prefix_store.h"

namespace moracle {

// Sequences of the decode steps that a GPU has graphs of.
inline constexpr std::array<std::int64_t, 9> kDecodeSizes{1, 2, 4, 8, 16, 24, 32, 48, 64};
// Memory of the driver that a layer takes of a graph, from above: on an H200 models of 12 and 48 layers took 57 and 28
// KiB (`bench model` tells, by DecodeGraphs::bytes).
inline constexpr std::size_t kGraphLayerBytes = std::size_t{64} << 10U;

class Transformer final : public Model {
 public:
  using Parts = TransformerParts;
  // The pool outlives the model.
  Transformer(Parts parts, ThreadPool& pool);

  // Makes the pool of all states, and the stream of a device. Errors: "memory.allocate", those of the device.
  Result<> make_pool(std::size_t bytes);

  [[nodiscard]] const ModelInfo& info() const override { return parts_.info; }
  [[nodiscard]] Result<std::unique_ptr<SequenceState>> new_sequence() const override;
  [[nodiscard]] std::int64_t prefill_chunk() const override;
  [[nodiscard]] std::int64_t decode_sequences() const override;
  [[nodiscard]] bool ranks_for_less() const override {
    return parts_.multipliers.logit_cap == 0.0F && (on_host() || parts_.head->has_top_k());
  }
  Result<> reserve(std::int64_t tokens) override;
  [[nodiscard]] const Parts& parts() const { return parts_; }
  [[nodiscard]] std::size_t state_bytes(std::int64_t length) const override { return state_layout_->bytes(length); }
  // Kinds of blocks in the pool, each of which has addresses for all of it.
  [[nodiscard]] std::size_t state_kinds() const { return state_layout_->block_bytes().size(); }
  [[nodiscard]] StateMemory state_memory() const override;
  [[nodiscard]] PrefixStore* prefixes() override { return prefixes_.get(); }
  // What reserve(tokens) takes on a device that has a part of the layers, and what it allocates on its own.
  [[nodiscard]] CallBytes call_bytes(const DeviceWorkspace& of, std::int64_t tokens) const;
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t tokens) const { return step_.workspace_bytes(tokens); }
  // Also "model.batch" (spans that do not tile the ids, a state of another model or twice), "model.positions".
  // On any error of the call every state is as before. Called from one thread at a time.
  Result<> run(const Batch& batch, std::span<SequenceState* const> states, BatchResult& result) override;
  void time_phases(PhaseClock* clock) override { clock_ = clock; }

  // Of a GPU that has the whole model: gives steps in which up to so many sequences have one token each memory of their
  // own. A step of run() takes the least that has room for it; sequences that it has not are spans of no tokens.
  // `graphs`: each is run once and captured, to be replayed from the ids up to the logits of every sequence. Prompts,
  // more sequences, and steps whose samples find no room are laid out for themselves. Without sequences all are.
  // Errors: those of the device.
  Result<> prepare_decode(std::span<const std::int64_t> sequences, bool graphs);
  [[nodiscard]] DecodeGraphs decode_graphs() const override { return graphs_; }
  [[nodiscard]] std::optional<ExpertSlots> expert_slots() const override;
  // What prepare_decode(kDecodeSizes) allocates, and what its graphs are taken for.
  [[nodiscard]] std::size_t decode_bytes() const;
  [[nodiscard]] std::size_t graph_bytes() const;

 private:
  // Of a call; a decode step may have fewer tokens, spans and rows.
  struct CallSize {
    InputSize in{};
    ResultSize out{};
    std::size_t logit_rows = 0;
    SampleArgs samples{};  // sizes
  };
  // What a call is laid out in.
  struct CallMemory {
    CallMemory(std::shared_ptr<const StateLayout> layout, const Device& device)
        : inputs(std::move(layout), device), results(device) {}
    ForwardInputs inputs;
    ForwardResult results;
    Buffer workspace;
  };
  struct DecodeStep {
    std::int64_t sequences = 0;
    std::optional<Graph> graph{};
  };

  [[nodiscard]] bool on_host() const { return is_host(*device_); }
  [[nodiscard]] std::int64_t layer_experts() const { return parts_.info.layers * parts_.info.experts; }
  [[nodiscard]] std::size_t logit_bytes(std::size_t rows) const {
    return rows * static_cast<std::size_t>(parts_.info.vocab_size) * sizeof(float);
  }
  // Fills spans_ and wanted_.
  Result<> check(const Batch& batch, std::span<SequenceState* const> states);
  Result<> check_tokens(const Batch& batch, const SequenceSpan& span) const;
  // Takes the memory of all spans. True: one has an error now.
  bool reserve_states(const Batch& batch, BatchResult& result);
  // A batch of those spans that have no error yet, which spans_ and wanted_ then are.
  Batch without_failed(const Batch& batch, const BatchResult& result);
  // Everything but holding what was computed.
  Result<> compute(const Batch& batch, std::span<SequenceState* const> states, BatchResult& result);
  [[nodiscard]] CallSize size_of(const Batch& batch) const;
  [[nodiscard]] CallSize decode_size(std::int64_t sequences) const;
  // The same with room for usual samples.
  [[nodiscard]] CallSize decode_room(std::int64_t sequences) const;
  // Blocks that so many sequences list at most.
  [[nodiscard]] std::size_t most_listed(std::int64_t sequences) const;
  // Runs a step without sequences, then captures it.
  Result<> capture(DecodeStep& step);
  // The decode step that has room for the batch, and then its size; null: none has.
  const DecodeStep* decode_step(const Batch& batch, CallSize& size);
  // Room for a call whose sequences list so many blocks.
  Result<> reserve_call(const CallSize& size, std::size_t blocks);
  // Of what the inputs of memory_ were filled with; `logits`: where the host wants them.
  StepCall make_call(const CallSize& size, float* logits);
  // `decode`: of the call; else null.
  Result<> run_step(const StepCall& call, const DecodeStep* decode, BatchResult& result);
  void enqueue(const StepCall& call, const DecodeStep* decode);
  // What the device found: routing, errors of spans, ranked logits.
  void read(BatchResult& result) const;
  void read_errors(BatchResult& result) const;
  // Fills sample_rows_.
  void list_samples(const Batch& batch, const BatchResult& result);
  void add_samples(const Batch& batch, CallSize& size) const;
  // How many samples are of the first `rows` rows of logits.
  [[nodiscard]] std::size_t samples_before(std::size_t rows) const;
  void read_samples(BatchResult& result) const;
  // Logits of rows that the first step had no room for, and what is chosen of them.
  Result<> read_logits(const StepCall& call, BatchResult& result);
  // All logits of ranked rows where those of the top are too few (Batch::Span::min_share).
  Result<> complete_rows(const StepCall& call, BatchResult& result);
  // Logits of further rows, of a device null where nobody asks for them, and whether they are finite.
  Result<> compute_rows(const StepCall& call, std::size_t first, std::size_t rows, float* logits, BatchResult& result);
  // Of a span that needs an expert which could not be read.
  void fail_unread(std::size_t span, BatchResult& result) const;
  void fail_rows(std::size_t first, std::size_t rows, BatchResult& result) const;
  // The first error of a span is kept.
  void fail(std::size_t span, std::int64_t token, const std::string& place, BatchResult& result) const;

  Parts parts_;
  std::shared_ptr<Device> device_;
  std::shared_ptr<Stream> stream_;
  std::shared_ptr<const StateLayout> state_layout_;
  std::shared_ptr<BlockLedger> blocks_;
  std::unique_ptr<PrefixStore> prefixes_;
  std::int64_t most_held_ = 0;  // positions of one sequence that the pool has room for
  ForwardStep step_;
  CallMemory calls_;
  CallMemory decode_calls_;         // of decode steps, where there are any
  CallMemory* memory_;              // of the call under way
  Buffer scratch_;                  // of ranks and samples
  MirroredMemory logits_;           // of a device: [rows, vocab_size]
  ExpertCounts counts_{};           // of the call
  std::vector<DecodeStep> decode_;  // by sequences
  DecodeGraphs graphs_{};
  std::int64_t reserved_tokens_ = 0;
  PhaseClock* clock_ = nullptr;
  // Kept between calls so that a call of a known size allocates nothing.
  std::vector<SequenceSpan> spans_;
  std::vector<Batch::Span> wanted_;   // of spans_
  std::vector<std::size_t> indices_;  // of spans_ in what was asked for
  std::vector<std::int32_t> ids_, positions_;
  std::vector<const SequenceState*> seen_;
  HeadRows rows_;
  std::vector<std::int32_t> sample_rows_;  // by sample: its row of logits
  std::vector<std::int32_t> piece_rows_;   // the same, among those that a device keeps at a time
  std::size_t sample_tops_ = 0;            // of all samples of the call
};

}  // namespace moracle
