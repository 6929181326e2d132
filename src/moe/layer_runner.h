// The packed experts of one MoE layer, with the workspace to run them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/memory.h"
#include "base/result.h"
#include "kernels/kernel.h"
#include "moe/placed_experts.h"

namespace moracle {

// Tokens and routing of one call, owned.
struct LayerInput {
  std::int64_t tokens = 0;
  std::int64_t hidden = 0;
  std::int64_t top_k = 0;
  std::vector<float> x;           // [tokens, hidden]
  std::vector<std::int32_t> ids;  // [tokens, top_k]
  std::vector<float> weights;     // [tokens, top_k]
  [[nodiscard]] ExpertsInput view() const { return view(tokens); }
  [[nodiscard]] ExpertsInput view(std::int64_t first_tokens) const {
    return {.tokens = first_tokens, .top_k = top_k, .x = x.data(), .ids = ids.data(), .weights = weights.data()};
  }
};

// How two outputs of one layer differ.
struct LayerDifference {
  double max_abs = 0;
  double mean_abs = 0;
  double relative = 0;  // |a - b| / |b|, Euclidean norms over all tokens
  double cosine = 1;
  bool finite = true;      // of a
  bool ref_finite = true;  // of b
};
[[nodiscard]] LayerDifference compare_outputs(const std::vector<float>& a, const std::vector<float>& b);

class LayerRunner {
 public:
  // Packs with the card's implementation. Runners that are called in turn may share the workspace of a GPU, which other
  // cards do not need. Errors: "oracle.not_built", those of pack_experts.
  static Result<LayerRunner> pack(const KernelCard& card, const CanonicalExperts& experts, const PackOptions& options,
                                  std::shared_ptr<DeviceWorkspace> workspace = nullptr);
  // Sizes the workspace for calls of up to `tokens` tokens. Errors: "memory.allocate", "device.memory",
  // "device.pinned".
  Result<> reserve(std::int64_t tokens, std::int64_t top_k);
  void run(const ExpertsInput& input, float* out);
  // What went wrong in a run on a device, once.
  [[nodiscard]] Result<> status() { return stream_.wait(); }
  // Seconds that a device took for the last run, without copies; empty: the host computed.
  [[nodiscard]] Result<std::optional<double>> device_seconds() const;
  [[nodiscard]] const PackedExperts& packed() const { return *experts_.parts().front().pack; }

 private:
  LayerRunner(PlacedExperts experts, ThreadPool& pool) : experts_(std::move(experts)), stream_(pool) {}

  PlacedExperts experts_;  // one part
  Stream stream_;          // of the host
  PageBuffer workspace_;
};

// The card of backend "ref" in the table of a scheme. Errors: "oracle.no_table", "oracle.no_reference".
Result<const KernelCard*> find_ref_card(const Scheme& scheme);

}  // namespace moracle
