// A loaded model: takes ragged batches of sequences, returns logits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/phase_clock.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "device/place.h"
#include "kernels/args/sample.h"
#include "kernels/kernel.h"
#include "kernels/kv_type.h"
#include "machine/machine.h"
#include "model/plan/placement.h"
#include "model/state/state.h"
#include "oracle/decide.h"

namespace moracle {

struct ModelInfo {
  std::string architecture;  // model_type: "qwen3_moe"
  std::string format;        // publisher's format: "gptq", ..., "none"
  std::int64_t layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t vocab_size = 0;
  std::int64_t max_context = 0;  // positions
  std::int64_t experts = 0;      // per layer
  std::int64_t experts_per_token = 0;
};

// The sizes that config.json alone tells, without a tensor: `format` is empty. Errors: those of config.json.
Result<ModelInfo> describe_model(const std::filesystem::path& folder, const Json& config);

// One module of the model as the checkpoint has it, and what the oracle decided for it.
struct ModuleReport {
  std::string name;  // "model.layers.3.mlp.experts", "model.layers.3.self_attn.q_proj", "lm_head"
  std::string kind;  // "experts", "linear", "router", "norm", "embedding", or what its one tensor is: "sinks", ...
  Scheme scheme{};
  std::string excluded_by{};  // rule that left it unquantized, as written in the config
  // Experts and linears only; a linear that attention absorbs has none.
  std::optional<Problem> problem{};
  std::optional<Decision> decision{};
  std::uint64_t bytes = 0;  // on disk
};

// Everything that can be said from headers alone: what the modules are, which kernel each gets, what is wrong.
// Keeps what it has opened, so that a load goes on from here.
class LoadPlan final {
 public:
  class Opened;  // load/plan.h
  // Reads config.json by architecture and format, opens every module, claims every tensor, asks the oracle. Reads
  // headers alone: no bias, no scale, no weight; of a tensor's bytes none but group indices, where the config says that
  // experts' columns are out of order (whether gate's and up's are alike decides) or a GPTQ config says nothing of it.
  // Errors: a config.json that is out of range or contradicts itself, an architecture, format or scheme that nobody
  // knows; tensors that are missing, claimed twice, left over, or of another dtype or shape; experts that are too few,
  // too many or numbered with gaps; a file that has changed; a pinned backend that cannot serve. Each module is decided
  // for its device: `modules` for the GPU of the place, if it has one, all else for its host. Routed experts are the
  // GPU's in the first `expert_layers` layers that have any; a warning tells where that is fewer than all.
  static Result<std::unique_ptr<LoadPlan>> make(std::shared_ptr<const Checkpoint> checkpoint, const Place& place,
                                                const Policy& policy, GpuModules modules = GpuModules::experts,
                                                std::int64_t expert_layers = kAllLayers);
  // All for one machine.
  static Result<std::unique_ptr<LoadPlan>> make(std::shared_ptr<const Checkpoint> checkpoint, const Machine& machine,
                                                const Policy& policy) {
    return make(std::move(checkpoint), Place{.host = machine}, policy);
  }
  explicit LoadPlan(std::unique_ptr<const Opened> opened);
  ~LoadPlan();
  [[nodiscard]] const ModelInfo& info() const;
  [[nodiscard]] const std::vector<ModuleReport>& modules() const;
  [[nodiscard]] const std::vector<std::string>& warnings() const;
  [[nodiscard]] std::uint64_t parameters() const;  // logical weights, not bytes
  // As the model that a load makes of it.
  [[nodiscard]] std::int64_t prefill_chunk() const;
  // Canonical weights by index in modules(), of kind "experts", and of kind "linear": reads what belongs to them and is
  // small; the matrices stay lazy. For `verify`.
  [[nodiscard]] Result<CanonicalExperts> read_experts(std::size_t module) const;
  [[nodiscard]] Result<CanonicalLinear> read_linear(std::size_t module) const;
  // Checkpoint::verify_unchanged: for whoever draws conclusions from what was read.
  [[nodiscard]] Result<> verify_unchanged() const;
  // What a load goes on from.
  [[nodiscard]] const Opened& opened() const { return *opened_; }

 private:
  std::unique_ptr<const Opened> opened_;
};

struct LoadProgress {
  std::uint64_t bytes_done = 0;
  std::uint64_t bytes_total = 0;
};

// Rows of logits whose tokens a call chooses or scores, whether or not it gives the rows.
struct BatchSamples {
  // One of the rows of a span whose logits are wanted.
  struct Row {
    std::size_t span = 0;
    std::int64_t row = 0;
  };
  std::span<const Row> rows{};  // in the order of spans and their rows
  SampleArgs args{};            // in memory of the host, without logits, logit rows, candidates and outputs
};

// A ragged batch: sequence s owns ids[spans[s].begin, + count), which continue its state at positions[...].
struct Batch {
  struct Span {
    std::int64_t begin = 0;
    std::int64_t count = 0;
    // What run() is to give of the span's tokens: logits of so many of the last ones (0: of none), ...
    std::int64_t rows = 1;
    // ... or, above 0 and with one row, only so many of the highest logits, as forward_top_k does.
    std::int64_t top_k = 0;
    std::optional<std::uint64_t> seed{};  // with top_k: what ranks are drawn with, and the temperature
    double temperature = 1.0;
    // With top_k and no seed, above 0: all logits where the last of top_k has at least this share of the first one's
    // weight, exp(logit / temperature).
    double min_share = 0.0;
  };
  std::span<const std::int32_t> ids;
  std::span<const std::int32_t> positions;
  std::span<const Span> spans;
  const BatchSamples* samples = nullptr;  // null: no token is chosen
  bool logits = true;                     // false: rows that are computed need not be given
  bool whole = false;                     // the call has the first error of a span, and then no state has changed
};

enum class LogitRows : std::uint8_t { last_of_each, all };

// Which logits of each span's last token are wanted.
struct TopK {
  std::int64_t k = 1;  // at least 1; all where it is more than those
  // [spans], or empty. With seeds, token i of span s ranks by logit / temperature + gumbel(seeds[s], i): the first of
  // them is a draw from the softmax of all.
  std::span<const std::uint64_t> seeds{};
  double temperature = 1.0;
};

// What run() gives of each span.
struct BatchResult {
  struct Span {
    std::optional<Error> error{};  // its state is as before; the other spans are not touched by it
    std::size_t logits = 0;        // where its rows begin in `logits`, [rows, vocab_size]
    std::size_t top = 0;           // where its tokens begin in `top`, [min(top_k, vocab_size)]
    bool all = false;              // top_k were too few by min_share: `logits` has its row
  };
  std::vector<Span> spans{};
  bool rows = true;  // false: `logits` has none but those of spans with `all`
  std::vector<float> logits{};
  std::vector<TokenLogit> top{};
  // By the row of BatchSamples, as of SampleArgs; of a span with an error they say nothing.
  std::vector<std::int32_t> ids{};
  std::vector<double> logprobs{};
  std::vector<TokenLogprob> tops{};  // [rows, most_tops]
};

// Memory for the states of sequences, in bytes.
struct StateMemory {
  std::size_t budget = 0;
  std::size_t used = 0;
  std::int64_t positions = 0;  // that one sequence can have, alone
};

class PrefixStore;

// What of a model's decode steps is replayed.
struct DecodeGraphs {
  std::int64_t sizes = 0;     // numbers of sequences that have a decode step; 0: of the host
  std::int64_t captured = 0;  // of them, in graphs
  std::int64_t replayed = 0;  // steps, since the load
  std::uint64_t bytes = 0;    // of the GPU, which first runs and captures took beside the steps' own memory
};

// Slots for packed experts of a model that has more experts than memory, and what has happened since the load.
struct ExpertSlots {
  std::uint64_t slots = 0;
  std::uint64_t experts = 0;     // of all layers
  std::uint64_t slot_bytes = 0;  // of one
  std::uint64_t uses = 0;        // experts that layers asked for, once a call
  std::uint64_t hits = 0;        // of those, in a slot
  std::uint64_t reads = 0;       // experts that were asked for
  std::uint64_t read_bytes = 0;  // of the files, with what was read ahead in vain
  std::uint64_t ahead = 0;       // experts of which reads were begun before they were asked for
  std::uint64_t foreseen = 0;    // of those, asked for
  std::uint64_t failures = 0;    // experts that could not be read or packed
};

class Model {
 public:
  virtual ~Model() = default;
  [[nodiscard]] virtual const ModelInfo& info() const = 0;
  [[nodiscard]] virtual Result<std::unique_ptr<SequenceState>> new_sequence() const = 0;
  // Tokens of a prompt that one call is best given.
  [[nodiscard]] virtual std::int64_t prefill_chunk() const { return kHostPrefillChunk; }
  // Sequences that one step is best given a token of.
  [[nodiscard]] virtual std::int64_t decode_sequences() const { return 32; }
  // Whether the highest logits of a span cost less than a choice from its whole row in the step.
  [[nodiscard]] virtual bool ranks_for_less() const { return true; }
  // Sizes workspaces for batches of up to `tokens` tokens; later calls with no more allocate nothing in the layers.
  virtual Result<> reserve(std::int64_t tokens) = 0;
  // Appends the batch to the states, span by span: one that fails ends alone, all others are held. Errors of a span:
  // "model.context" (prompt beyond max_context), "model.token" (id out of range), "numeric.nan", "memory.state"; where
  // experts are read from files, "file.read" and its like of an expert that a span needs, and those of a pack. Of the
  // call: "model.batch", those of a device; then no state has changed.
  virtual Result<> run(const Batch& batch, std::span<SequenceState* const> states, BatchResult& result) = 0;
  // The same of a whole batch: f32 logits [rows, vocab_size], rows = spans or ids by `rows`. Errors: those of run() and
  // of the first span that has one; then no state has changed.
  Result<> forward(const Batch& batch, std::span<SequenceState* const> states, LogitRows rows,
                   std::vector<float>& logits);
  // The same, but only the k highest-ranking logits of each span's last token, best first, of equal ones the lower id
  // first: top [spans, k]. With k up to kMaxHeadTopK a head that its kernel packed for it is not read whole.
  Result<> forward_top_k(const Batch& batch, std::span<SequenceState* const> states, const TopK& which,
                         std::vector<TokenLogit>& top);
  [[nodiscard]] virtual StateMemory state_memory() const { return {}; }
  // What a sequence of `length` positions takes of it.
  [[nodiscard]] virtual std::size_t state_bytes(std::int64_t /*length*/) const { return 0; }
  [[nodiscard]] virtual DecodeGraphs decode_graphs() const { return {}; }
  // Empty: all experts are in memory. From any thread.
  [[nodiscard]] virtual std::optional<ExpertSlots> expert_slots() const { return std::nullopt; }
  // Prefixes of sequences that were run; null: the model keeps none.
  [[nodiscard]] virtual PrefixStore* prefixes() { return nullptr; }
  // Later calls tell `clock` what they are at, and leave it in Phase::other; null: they tell nobody.
  virtual void time_phases(PhaseClock* /*clock*/) {}

 private:
  // Of forward() and forward_top_k(), kept between calls so that a call of a known size allocates nothing.
  std::vector<Batch::Span> wanted_;
  BatchResult whole_;
};

struct LoadOptions {
  std::function<bool(const LoadProgress&)> progress{};  // whether to go on, else "interrupted"; may be empty
  std::optional<KvType> kv{};                           // empty: kv_type()
  // Bytes for the states of all sequences; 0: nine tenths of the memory less the weights, and no more than 64 sequences
  // of full length take, or, on a GPU, `sequences` of `context` positions.
  std::size_t kv_memory = 0;
  // Bytes of the host for all that a load holds; 0: nine tenths of what is free. Where it takes more, routed experts
  // share slots, and are read from the files when a call needs them.
  std::uint64_t memory = 0;
  // Above 0: they share so many slots, whether or not all fit.
  std::size_t expert_slots = 0;
  std::int64_t sequences = 64;
  std::int64_t context = 0;  // 0: what the model can hold
};

// bf16, but f32 where the reference kernels are pinned, so that nothing is rounded.
[[nodiscard]] KvType default_kv_type(const Policy& policy);

// Packs every module of the plan with the kernels the plan decided on; reads the file once. On error nothing is left.
// The plan's checkpoint may be dropped afterwards: serving never depends on the mapping. On the host also the errors of
// expert_room.
Result<std::unique_ptr<Model>> load_model(LoadPlan& plan, ThreadPool& pool, const LoadOptions& options = {});

}  // namespace moracle
