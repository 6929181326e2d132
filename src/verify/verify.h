// Holds every experts layer of a checkpoint, computed by the chosen backend, against the reference kernel, and looks at
// the weights themselves. Says whether the checkpoint or the backend is at fault.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "device/gpu_device.h"
#include "model/model.h"
#include "moe/layer_runner.h"
#include "verify/ranks.h"
#include "verify/weight_audit.h"

namespace moracle {

struct VerifyOptions {
  std::string layout{};                 // an external layout to pack and run instead of the chosen backend; empty: none
  std::shared_ptr<GpuDevice> device{};  // of the plan; null: the host computes
  bool batch_invariant = false;         // as the plan's policy
  RankLayout ranks{};                   // more than one rank: each layer is also held to what its ranks add up to
  std::int64_t tokens = 32;             // raised where needed so that every expert is hit
  std::function<void(std::int64_t done, std::int64_t total)> on_progress{};  // modules; may be empty
  std::function<bool()> interrupted{};                                       // may be empty
};

struct LayerVerdict {
  std::string name;
  std::string backend;
  LayerDifference difference;
  double bound = 0;  // on difference.relative
  bool ok = false;
  std::optional<RanksVerdict> ranks{};  // where VerifyOptions::ranks asks
  [[nodiscard]] bool right() const { return ok && (!ranks || ranks->ok()); }
};

struct Verification {
  std::vector<LayerVerdict> layers;
  std::vector<Finding> findings;
  std::int64_t tokens = 0;
  bool interrupted = false;
  [[nodiscard]] bool checkpoint_ok() const;  // no finding that is an error
  [[nodiscard]] bool backend_ok() const;     // every layer within its bound, and its ranks
  [[nodiscard]] bool ok() const { return checkpoint_ok() && backend_ok() && !interrupted; }
};

// Runs one MoE layer with `card` on weights `packed` and with `ref` on weights `truth`, on the same unit-variance
// inputs, and holds the difference against layer_error_bound. Tokens are raised until 8192 hidden values are compared.
// Two sets of weights let tests damage those of the kernel. Errors: those of packing, "memory.allocate".
Result<LayerVerdict> compare_with_ref(const KernelCard& card, const CanonicalExperts& packed,
                                      const CanonicalExperts& truth, const Problem& problem, std::int64_t tokens,
                                      std::uint64_t seed, ThreadPool& pool,
                                      const std::shared_ptr<GpuDevice>& device = nullptr, bool batch_invariant = false);

// Works on the plan's lazy weights, one layer in memory at a time. Errors: an experts layer that no backend serves,
// "oracle.layout" where the layout cannot hold one, "plan.tp" and "plan.ep" of ranks, "memory.allocate". What is wrong
// with weights or numbers is not an error but part of the result.
Result<Verification> verify(const LoadPlan& plan, ThreadPool& pool, const VerifyOptions& options);

}  // namespace moracle
