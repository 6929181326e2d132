// How much memory one rank of a model takes, from headers alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/model.h"

namespace moracle {

// Which kernel serves the experts of a layer, on a machine that may not be this one.
struct ExpertsKernel {
  const KernelCard* card = nullptr;  // null: a dense layer, or no kernel is known
  // Counted as the kernel lays them out; else at their published widths.
  bool packed = false;
  std::uint64_t bytes = 0;
  std::uint64_t slot_bytes = 0;  // of one expert, where it can be packed alone
};

struct LayerMemory {
  std::string name{};              // "model.layers.3"
  std::uint64_t mixer = 0;         // attention or recurrence with its norms, packed
  std::uint64_t feed_forward = 0;  // router, experts, shared experts, or the dense projections, packed
  std::uint64_t norms = 0;         // the layer's own two
  std::uint64_t state = 0;         // keys and values of `context` positions, or the recurrent state
  ExpertsKernel experts{};

  // Weights that are no routed expert's.
  [[nodiscard]] std::uint64_t rest() const { return mixer + feed_forward + norms - experts.bytes; }
};

// What a GPU takes of a plan, and what it has room for.
struct MemoryOnDevice {
  bool main = false;  // it has every module but, in some layers, routed experts; else these alone
  std::uint64_t weights = 0;
  std::uint64_t state = 0;       // of the sequence, where the GPU is the main one
  std::uint64_t workspace = 0;   // of one call, and of decode steps with their graphs
  std::uint64_t least = 0;       // weights, state, and workspace of a call of one token
  std::uint64_t free = 0;        // to allocate, when it was asked
  std::int64_t layers = 0;       // whose experts it computes, or all
  std::int64_t layers_held = 0;  // of those, from the first on, beside the workspace of a call of one token
  std::int64_t call_tokens = 0;  // most of a call, up to batch_tokens, beside all weights; 0: not one

  [[nodiscard]] std::uint64_t total() const { return weights + state + workspace; }
  [[nodiscard]] bool fits() const { return total() <= free; }
};

struct MemoryPlan {
  std::int64_t context = 0;       // positions of the one sequence that is counted
  std::int64_t batch_tokens = 0;  // of one call
  std::vector<LayerMemory> layers{};
  std::uint64_t embedding = 0;
  std::uint64_t head = 0;
  std::uint64_t final_norm = 0;
  std::uint64_t state = 0;      // of the sequence, as it is allocated
  std::uint64_t workspace = 0;  // of one call, on the host
  MemoryOnDevice on_device{};   // a part of weights(), and what else lies there
  // False where a module's layout is not known: it is then counted at its published width.
  bool packed = true;

  [[nodiscard]] std::uint64_t weights() const;
  [[nodiscard]] std::uint64_t total() const { return weights() + state + workspace + on_device.workspace; }
  [[nodiscard]] std::uint64_t on_host() const { return total() - on_device.total(); }
};

inline constexpr std::int64_t kUsualContext = 4096;  // positions, where nobody says how many

struct MemoryPlanOptions {
  int tp = 1;  // see RankLayout
  int ep = 1;
  std::int64_t context = 0;        // 0: the model's own
  std::int64_t batch_tokens = 1;   // of one call at most; no more than the context
  std::int64_t prefill_chunk = 0;  // of the model that is loaded; 0: what is usual on the device
  int threads = 1;
  std::optional<KvType> kv{};  // as in LoadOptions
};

// Sizes are those that load_model and Model::reserve come to: the same layouts are made, without weights. On another
// device experts are counted as its best kernel lays them out, where this build knows that layout (CardKind::external);
// the workspace of that kernel is not known. Reads no weight, and input scales and group indices only where they decide
// how much workspace a layer takes. Errors: "plan.tp", "plan.ep" (see parallel_cut.h), "plan.context",
// "oracle.no_kernel" and its like where a rank's share is not served, those of decide for a pinned backend, those of
// GpuDevice::room and device_ops.
Result<MemoryPlan> memory_plan(const LoadPlan& plan, const MemoryPlanOptions& options);

// One degree of parallelism, and what forbids it: the first module in the way, and its rule. Empty: legal.
struct Degree {
  int degree = 1;
  std::string module{};
  std::string wanted{};  // may be empty
  std::string found{};   // "tp 3 does not divide 4 attention heads", "tp 2 leaves 64 columns a rank"
  [[nodiscard]] bool legal() const { return found.empty(); }
};
// Every degree from 1 to 16, and 32 and 64.
[[nodiscard]] std::vector<Degree> tensor_degrees(const LoadPlan& plan);
[[nodiscard]] std::vector<Degree> expert_degrees(const LoadPlan& plan);

}  // namespace moracle
