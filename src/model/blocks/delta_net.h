// Gated delta net (Yang et al., arXiv 2412.06464): a recurrence with a state of fixed size instead of keys and values.
#pragma once

#include <memory>
#include <vector>

#include "model/blocks/blocks.h"

namespace moracle {

// Projections around Ops::delta_rule.
class DeltaNet final : public Mixer {
 public:
  struct Parts {
    // Rows of what the projections give. Separate: qkv [q | k | v], z, b, a, each head after head. Grouped, z and a
    // null: qkv's and b's rows lie key head by key head, [q | k | v | z] and [b | a] with the head's values together.
    std::unique_ptr<PackedLinear> qkv, z{}, b, a{}, out;
    std::vector<float> conv{};     // [channels, kernel] as stored; the last tap is for the current token
    std::vector<float> a_log{};    // [value_heads]
    std::vector<float> dt_bias{};  // [value_heads]
    Norm norm{};                   // [value_dim], over each head of the output, before the gate
    std::int64_t key_heads = 0;
    std::int64_t value_heads = 0;  // a multiple of key_heads
    std::int64_t key_dim = 0;
    std::int64_t value_dim = 0;
    std::int64_t kernel = 0;
    std::size_t layer = 0;  // index into the sequence state
  };
  explicit DeltaNet(Parts parts);

  [[nodiscard]] LayerState state() const override;
  [[nodiscard]] std::size_t bytes() const override;
  [[nodiscard]] std::size_t workspace_bytes(const Ops& ops, std::int64_t tokens, int threads) const override;
  void run(const ForwardContext& context, const float* x, float* out) const override;

 private:
  struct Call;

  // All but pointers, for so many tokens.
  [[nodiscard]] DeltaRuleArgs shape(std::int64_t tokens) const;
  // Lays out one call's memory; with a counting arena it tells how much that is.
  Call lay_out(BumpArena& arena, const Ops& ops, std::int64_t tokens, int threads) const;

  Parts parts_;
  std::vector<float> taps_;  // [kernel, channels]
  std::vector<float> rate_;  // [value_heads]: exp(A_log)
};

}  // namespace moracle
