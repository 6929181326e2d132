// Grouped-query attention over paged keys and values.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "model/blocks/blocks.h"

namespace moracle {

// Projections around Ops::attention.
class Attention final : public Mixer {
 public:
  struct Parts {
    std::unique_ptr<PackedLinear> q, k, v, o;   // v null: values are what k gives
    std::unique_ptr<PackedLinear> head_gate{};  // null, or [heads, hidden]: a sigmoid gate on each head's output
    std::unique_ptr<PackedLinear> wide_gate{};  // null, or [heads * head_dim, hidden]: a gate on each element
    Norm q_norm{}, k_norm{};                    // weight empty: none; [head_dim]: each head; else the whole vector
    DeviceArray<float> sinks{};                 // [heads] or empty
    AttentionShape shape{};
    std::optional<std::size_t> rope{};  // index into ForwardContext::ropes; none: positions do not turn the heads
    std::size_t layer = 0;              // index into the sequence state
    KvType kv = KvType::f32;
    bool batch_invariant = false;  // positions are added in one order for any call

    [[nodiscard]] const PackedLinear* gate() const { return wide_gate ? wide_gate.get() : head_gate.get(); }
  };
  explicit Attention(Parts parts) : parts_(std::move(parts)) {}

  [[nodiscard]] LayerState state(const Ops& ops) const override;
  [[nodiscard]] std::size_t bytes() const override;
  [[nodiscard]] std::size_t workspace_bytes(const Ops& ops, std::int64_t tokens, int threads) const override;
  void run(const ForwardContext& context, const float* x, float* out) const override;

 private:
  struct Call;

  // Lays out one call's memory; with a counting arena it tells how much that is.
  Call lay_out(BumpArena& arena, const Ops& ops, std::int64_t tokens, int threads) const;

  Parts parts_;
};

}  // namespace moracle
