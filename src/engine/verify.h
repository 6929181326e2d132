// Holds every experts layer of a checkpoint, computed by the chosen backend, against the reference kernel, and looks at
// the weights themselves. Says whether the checkpoint or the backend is at fault.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/health.h"
#include "engine/layer_runner.h"
#include "model/model.h"

namespace moracle {

struct VerifyOptions {
  std::string layout{};      // a foreign layout to pack and run instead of the chosen backend; empty: none
  std::int64_t tokens = 32;  // raised where needed so that every expert is hit
  std::function<void(std::int64_t done, std::int64_t total)> on_progress{};  // modules; may be empty
  std::function<bool()> interrupted{};                                       // may be empty
};

struct LayerVerdict {
  std::string name;
  std::string backend;
  LayerDifference difference;
  double bound = 0;  // on difference.relative
  bool ok = false;
};

struct Verification {
  std::vector<LayerVerdict> layers;
  std::vector<Finding> findings;
  std::int64_t tokens = 0;
  bool interrupted = false;
  [[nodiscard]] bool checkpoint_ok() const;  // no finding that is an error
  [[nodiscard]] bool backend_ok() const;     // every layer within its bound
  [[nodiscard]] bool ok() const { return checkpoint_ok() && backend_ok() && !interrupted; }
};

// Largest relative error (Euclidean norms) that the arithmetic of a kernel can explain.
//
// Let u be the unit roundoff of the form in which the kernel multiplies activations. Independent roundings of the terms
// of a dot product leave its relative error at u / sqrt(3), whatever its length. Gate and up carry one such error each,
// their product sqrt(2) of it, its own rounding before w2 one more: u * sqrt(3) / sqrt(3) = u in all, or sqrt(2) u
// where weights are rounded as well. Four times that is the bound.
//   f32 activations   u = 2^-24, but sums of K terms add up to about sqrt(K) of them: 1e-5 covers K up to 16384
//   bf16 activations  u = 2^-9: 4 sqrt(2) 2^-9 = 1.1e-2
//   8-bit activations, of the scheme or of policy fast: a step of amax / 127 (int8) is 1/36 of a normal row's rms, an
//     error of 1/36/sqrt(12) = 0.8 %; the product before w2 has heavier tails, amax about 16 rms, 3.6 %: 4 x 3.7 % =
//     0.15; integers of 16 bits are 256 times finer (relative_rounding in oracle/card.h). E4M3 has a relative step of
//     2^-4 and stays below that. 4-bit activations: relative step 2^-2, 0.6
[[nodiscard]] double relative_error_bound(const KernelCard& card, const Scheme& scheme);

// Works on the plan's lazy weights, one layer in memory at a time. Errors: an experts layer that no backend serves,
// "oracle.layout" where the layout cannot hold one, "memory.allocate". What is wrong with weights or numbers is not an
// error but part of the result.
Result<Verification> verify(const LoadPlan& plan, ThreadPool& pool, const VerifyOptions& options);

}  // namespace moracle
