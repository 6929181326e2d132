// Selective state spaces: Mamba (Gu and Dao, arXiv 2312.00752) and Mamba-2 (arXiv 2405.21060).
#pragma once

#include <memory>
#include <utility>

#include "model/blocks/short_convolution.h"

namespace moracle {

// Projections around Ops::convolution and Ops::state_space.
class StateSpace final : public Mixer {
 public:
  struct Parts {
    std::unique_ptr<PackedLinear> gate, mixed, step, out;
    // Of Mamba: what the convolution gives, to [rank] of steps and to [states] each; else null.
    std::unique_ptr<PackedLinear> selected_step{}, selected_b{}, selected_c{};
    Norm step_norm{}, b_norm{}, c_norm{};
    Taps taps{};
    DeviceArray<float> rate{};       // [heads] or [heads, states]: exp(A_log)
    DeviceArray<float> skip{};       // [heads]
    DeviceArray<float> step_bias{};  // [heads] or empty
    Norm norm{};                     // over groups of the width, or none
    std::int64_t norm_groups = 1;
    std::int64_t kernel = 0;
    StateSpaceShape shape{};
    std::size_t layer = 0;  // index into the sequence state
  };
  explicit StateSpace(Parts parts) : parts_(std::move(parts)) {}

  [[nodiscard]] LayerState state(const Ops& ops) const override;
  [[nodiscard]] std::size_t bytes() const override;
  [[nodiscard]] std::size_t workspace_bytes(const Ops& ops, std::int64_t tokens, int threads) const override;
  void run(const ForwardContext& context, const float* x, float* out) const override;

 private:
  struct Call;

  [[nodiscard]] bool selects() const { return parts_.selected_step != nullptr; }
  [[nodiscard]] ConvolutionShape convolution() const;
  // Lays out one call's memory; with a counting arena it tells how much that is.
  Call lay_out(BumpArena& arena, std::int64_t tokens, int threads) const;
  // Of Mamba: steps, inputs and outputs of states from what the convolution gave.
  void select(const ForwardContext& context, const Call& call) const;

  Parts parts_;
};

}  // namespace moracle
