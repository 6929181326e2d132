// Gated delta net (Yang et al., arXiv 2412.06464): a recurrence with a state of fixed size instead of keys and values.
#pragma once

#include <array>
#include <memory>
#include <utility>

#include "model/blocks/blocks.h"

namespace moracle {

// Projections around Ops::delta_rule.
class DeltaNet final : public Mixer {
 public:
  struct Parts {
    // Rows of what the projections give. Separate: qkv [q | k | v], z, b, a, each head after head. Grouped: qkv's and
    // b's rows are, key head by key head, [q | k | v | z] and [b | a] with the head's values together; z and a are
    // null. Apart: qkv is q, and k and v are there.
    std::unique_ptr<PackedLinear> qkv, z{}, b, a{}, out;
    std::unique_ptr<PackedLinear> k{}, v{};
    std::unique_ptr<PackedLinear> z_low{}, a_low{};  // to [rank]: what z and a read; null: they read the input
    std::int64_t z_rank = 0;
    std::int64_t a_rank = 0;
    DeviceArray<float> taps{};              // [kernel, channels]; the last tap is for the current token
    DeviceArray<float> k_taps{}, v_taps{};  // apart: [kernel, channels of each]
    DeviceArray<float> rate{};              // [value_heads]: exp(A_log)
    DeviceArray<float> dt_bias{};           // [shape.decays()]
    Norm norm{};                            // [value_dim], over each head of the output, before the gate
    DeltaNetShape shape{};
    std::size_t layer = 0;         // index into the sequence state
    bool batch_invariant = false;  // tokens are added in one order for any call
  };
  explicit DeltaNet(Parts parts) : parts_(std::move(parts)) {}

  [[nodiscard]] LayerState state(const Ops& ops) const override;
  [[nodiscard]] std::size_t bytes() const override;
  [[nodiscard]] std::size_t workspace_bytes(const Ops& ops, std::int64_t tokens, int threads) const override;
  void run(const ForwardContext& context, const float* x, float* out) const override;

 private:
  struct Call;

  [[nodiscard]] std::array<const PackedLinear*, 9> linears() const;
  void project(const ForwardContext& context, const Call& call, const float* x) const;

  // Lays out one call's memory; with a counting arena it tells how much that is.
  Call lay_out(BumpArena& arena, const Ops& ops, std::int64_t tokens, int threads) const;

  Parts parts_;
};

}  // namespace moracle
