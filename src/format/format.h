// A publisher's format: turns quantization_config and stored tensors into canonical matrices.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "format/decode/stored_linear.h"
#include "scheme/canonical.h"

namespace moracle {

// Which module reads each stored tensor. Every tensor is used exactly once; what is left over at the end of a load is
// an error unless it is one of the ignored tensors.
class TensorClaims {
 public:
  explicit TensorClaims(std::shared_ptr<const Checkpoint> checkpoint) : checkpoint_(std::move(checkpoint)) {}
  [[nodiscard]] const std::shared_ptr<const Checkpoint>& checkpoint() const { return checkpoint_; }
  // Null when there is no such tensor.
  [[nodiscard]] const TensorView* find(std::string_view name) const { return checkpoint_->find(name); }
  // True when any tensor is stored below the module: "<module>.<something>".
  [[nodiscard]] bool has_module(std::string_view module) const;
  // Marks a tensor as used. Errors: "tensor.missing", "tensor.twice".
  [[nodiscard]] Result<const TensorView*> claim(std::string_view name);
  // A stacked tensor is read by many experts: claimed once by the first, free for the rest.
  [[nodiscard]] Result<const TensorView*> claim_shared(std::string_view name);
  [[nodiscard]] std::vector<std::string> unclaimed() const;
  // The tensors that were claimed since the last call, each once.
  [[nodiscard]] std::vector<const TensorView*> take_new() { return std::exchange(claims_, {}); }

 private:
  std::shared_ptr<const Checkpoint> checkpoint_;
  std::unordered_set<const TensorView*> claimed_;
  std::unordered_set<const TensorView*> shared_;
  std::vector<const TensorView*> claims_;
};

// One logical weight matrix [out, in] and where it is stored.
struct ModuleRef {
  std::string path;                     // "model.layers.3.self_attn.q_proj"; tensors are "<path>.<part>"
  std::vector<std::string> fused;       // names of fused modules it is a shard of: "model.layers.3.self_attn.qkv_proj"
  std::string module_class = "Linear";  // the class name that config targets may use
  std::int64_t out = 0;
  std::int64_t in = 0;
  // A matrix inside a stacked 3-D tensor "<path>" [experts, rows, cols]: which expert, and which of its rows.
  struct Slice {
    std::int64_t expert = 0;
    std::int64_t experts = 0;
    std::int64_t row_begin = 0;   // gate: 0, up: intermediate (split) or 1 (interleaved)
    std::int64_t row_stride = 1;  // 2 when gate and up rows are interleaved
    std::int64_t total_rows = 0;  // rows of one expert in the stacked tensor
    bool transposed = false;      // stored [experts, in, rows]
  };
  std::optional<Slice> slice{};
};

// What a format says about a module.
struct ModuleScheme {
  Scheme scheme{};
  std::string excluded_by{};  // the rule that leaves it unquantized, as written in the file; empty when quantized
};

// One instance per checkpoint, made from its quantization_config. Immutable but for warnings.
class Format {
 public:
  virtual ~Format() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;  // "gptq", "awq", "compressed-tensors", "none", ...
  // Errors name the config's JSON pointer or the tensor.
  [[nodiscard]] virtual Result<ModuleScheme> scheme_of(const ModuleRef& module, const TensorClaims& claims) const = 0;
  // Claims the module's tensors and checks their dtypes and shapes: reads headers, and of a tensor's bytes no more than
  // what decides the scheme and stands nowhere else. `bias` is claimed where stored. The result names
  // the rule that scheme_of names.
  [[nodiscard]] virtual Result<StoredLinear> open(const ModuleRef& module, TensorClaims& claims) const = 0;
  // Patterns of the config that matched no module of the model, and the like. Asked after all modules were opened.
  [[nodiscard]] virtual std::vector<std::string> warnings() const { return {}; }
  // What the config said twice and differently, and where its label is not that of what is stored.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  void set_notes(std::vector<std::string> notes) { notes_ = std::move(notes); }

 private:
  std::vector<std::string> notes_;
};

// Picks the format by config.json: quantization_config.quant_method, or none; of packed words, by how they lie. Errors:
// "config.unsupported" with the list of known formats, "config.contradiction", ...
Result<std::unique_ptr<Format>> make_format(const Checkpoint& checkpoint);

// Opens a module that is unquantized whatever the format says of it: routers, heads that an architecture
// keeps in full precision. "<path>.weight" [out, in] and "<path>.bias". Errors: "tensor.missing",
// "config.contradiction" for a dtype that only quantized weights have, "tensor.shape".
Result<StoredLinear> open_plain(const ModuleRef& module, TensorClaims& claims);

// Where a layer's routed experts may be stored; architectures list the layouts their publishers use, the first whose
// tensors exist is taken. "{e}" stands for the expert number.
struct ExpertsLayout {
  // Per expert: "model.layers.3.mlp.experts.{e}.gate_proj". Without "{e}" a name stacks one projection of all experts:
  // "model.layers.3.moe.gate_proj" [E, N, K]; gate_up with "{e}" is one [2N, K] matrix an expert, in any packing.
  std::string gate{}, up{}, down{};  // without gate and gate_up: experts are ungated, and up is all of w1
  std::string gate_up{},
      stacked_down{};        // stacked: "model.layers.3.mlp.experts.gate_up_proj" [E, 2N, K], down [E, K, N]
  bool interleaved = false;  // stacked: gate and up rows alternate
  bool transposed = false;   // stacked: [E, K, 2N] and [E, N, K], unless the shape says otherwise
};

struct ExpertsRef {
  std::string name;  // "model.layers.3.mlp.experts"
  std::vector<ExpertsLayout> layouts;
  std::int64_t experts = 0;
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
};

// Opens all experts of a layer. Errors: "experts.count" (listing gaps), "experts.scheme" when two differ, and those of
// Format::open.
Result<StoredExperts> open_experts(const Format& format, const ExpertsRef& ref, TensorClaims& claims);

}  // namespace moracle
