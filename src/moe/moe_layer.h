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
#include "moe/placed_experts.h"
#include "moe/routing.h"

namespace moracle {

// Where the choices of a forward pass add up, in memory of the stream's device.
struct ExpertCounts {
  const std::int32_t* rows = nullptr;  // [tokens]: whose counts a token adds to; -1: nobody's
  std::uint32_t* counts = nullptr;     // [rows, layers, experts]
  std::int64_t row_stride = 0;         // layers * experts
};

// What a feed-forward reads, [tokens, hidden]: rows that are there, or those that a norm makes once it is asked to.
struct NormedInput {
  NormedInput(const float* rows) : x(rows) {}  // NOLINT(google-explicit-constructor): rows are an input
  explicit NormedInput(const AddNormArgs& made_by) : x(made_by.out), norm(made_by) {}

  const float* x;
  AddNormArgs norm{};             // without x: there is none
  const float* router = nullptr;  // what the router reads instead of x, or null
};

class MoeLayer {
 public:
  struct Parts {
    RoutingSpec routing{};
    std::int64_t hidden = 0;
    DeviceArray<float> router{};            // [rows, hidden]
    DeviceArray<float> router_bias{};       // [rows] or empty: added to the logits
    DeviceArray<float> correction_bias{};   // [rows] or empty: added to the scores, for the choice only
    DeviceArray<float> expert_scale{};      // [experts] or empty: weights are multiplied by it
    DeviceArray<std::int32_t> fixed_ids{};  // hash layers: [vocabulary, top_k]
    PlacedExperts experts{};
    bool batch_invariant = false;  // logits are added in one order for any call
    std::int32_t layer = 0;        // of the model: its mark in DeviceStatus, its place in ExpertCounts
    const Ops* ops = nullptr;
  };
  explicit MoeLayer(Parts parts) : parts_(std::move(parts)) {}

  [[nodiscard]] std::size_t bytes() const;
  // Enough for any call of at most `tokens` tokens on a pool of `threads`.
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t tokens, int threads) const;

  // On another device than the caller's.
  [[nodiscard]] CallBytes call_bytes(const DeviceWorkspace& of, std::int64_t tokens) const {
    return parts_.experts.call_bytes(of, tokens, parts_.routing.top_k);
  }

  // out[tokens, hidden] = routed experts of the input, [tokens, hidden], once finish() has returned; overwrites `out`.
  // The input's norm is made. `token_ids` [tokens], or null without a hash layer: as of RouteArgs. A token whose router
  // logits are not finite gets a zero row and a mark in the status; the others are unaffected. `clock` and `counts` may
  // be null. With zero experts `passed` [tokens] says how much of its input a token gets beside. No allocation.
  void begin(const RunContext& context, std::int64_t tokens, NormedInput input, const std::int32_t* token_ids,
             float* out, PhaseClock* clock = nullptr, const ExpertCounts* counts = nullptr,
             float* passed = nullptr) const;
  // The layer whose experts are asked for next, of the same width: where they are read from files, calls foresee them.
  // It outlives the calls.
  void set_next(const MoeLayer& next) {
    if (next.parts_.experts.read() != nullptr) next_ = &next;
  }
  // Nothing of begin() is read but what is on other devices: its workspace may serve others in between.
  void finish(const RunContext& context, std::int64_t tokens, float* out) const {
    parts_.experts.finish(context, tokens, parts_.routing.top_k, out);
  }

 private:
  struct Buffers;

  [[nodiscard]] Buffers lay_out(BumpArena& arena, std::int64_t tokens, int threads) const;
  // The choice of experts of `tokens` rows of x, which a norm may make, without outputs.
  [[nodiscard]] RouteArgs route_of(std::int64_t tokens, const float* x, const std::int32_t* token_ids) const;
  // Tells that experts will be asked for: those that the layer chooses of x[tokens, hidden], all where tokens are many.
  void foresee(const RunContext& context, std::int64_t tokens, const float* x, const std::int32_t* token_ids) const;

  Parts parts_;
  const MoeLayer* next_ = nullptr;
};

}  // namespace moracle
