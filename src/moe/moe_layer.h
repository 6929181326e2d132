// One mixture-of-experts layer: router, choice of experts, experts, weighted sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/memory.h"
#include "base/phase_clock.h"
#include "device/array.h"
#include "kernels/kernel.h"
#include "kernels/ops.h"
#include "moe/routing.h"

namespace moracle {

// Where the choices of a forward pass add up, in memory of the stream's device.
struct ExpertCounts {
  const std::int32_t* rows = nullptr;  // [tokens]: whose counts a token adds to; -1: nobody's
  std::uint32_t* counts = nullptr;     // [rows, layers, experts]
  std::int64_t row_stride = 0;         // layers * experts
};

class MoeLayer {
 public:
  struct Parts {
    RoutingSpec routing{};
    std::int64_t hidden = 0;
    DeviceArray<float> router{};            // [experts, hidden]
    DeviceArray<float> router_bias{};       // [experts] or empty: added to the logits
    DeviceArray<float> correction_bias{};   // [experts] or empty: added to the scores, for the choice only
    DeviceArray<std::int32_t> fixed_ids{};  // hash layers: [vocabulary, top_k]
    std::unique_ptr<PackedExperts> experts{};
    std::int32_t layer = 0;  // of the model: its mark in DeviceStatus, its place in ExpertCounts
    const Ops* ops = nullptr;
  };
  explicit MoeLayer(Parts parts) : parts_(std::move(parts)) {}

  [[nodiscard]] std::size_t bytes() const;
  // Enough for any call of at most `tokens` tokens on a pool of `threads`.
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t tokens, int threads) const;

  // As of the experts.
  [[nodiscard]] StageBytes stage_bytes(std::int64_t tokens) const {
    return parts_.experts->stage_bytes(tokens, parts_.routing.top_k);
  }
  Result<> reserve(std::int64_t tokens) const { return parts_.experts->reserve(tokens, parts_.routing.top_k); }

  // out[tokens, hidden] = routed experts of x[tokens, hidden]; overwrites `out`. `token_ids` [tokens] is read by hash
  // layers only. A token whose router logits are not finite gets a zero row and a mark in the status; the others are
  // unaffected. `clock` and `counts` may be null. No allocation.
  void run(const RunContext& context, std::int64_t tokens, const float* x, const std::int32_t* token_ids, float* out,
           PhaseClock* clock = nullptr, const ExpertCounts* counts = nullptr) const;

 private:
  struct Buffers;

  [[nodiscard]] Buffers lay_out(BumpArena& arena, std::int64_t tokens, int threads) const;

  Parts parts_;
};

}  // namespace moracle
