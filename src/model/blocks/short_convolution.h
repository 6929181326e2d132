// A short convolution between two gates, as LFM2 has in place of most attention.
#pragma once

#include <memory>
#include <utility>

#include "model/blocks/blocks.h"

namespace moracle {

// Of a causal convolution.
struct Taps {
  DeviceArray<float> weight{};  // [kernel, channels]; the last is for the current token
  DeviceArray<float> bias{};    // [channels] or empty

  [[nodiscard]] std::size_t bytes() const { return weight.bytes() + bias.bytes(); }
};

// Projections around Ops::convolution.
class ShortConvolution final : public Mixer {
 public:
  struct Parts {
    std::unique_ptr<PackedLinear> times, gate, x, out;
    Taps taps{};
    ConvolutionShape shape{};
    std::size_t layer = 0;  // index into the sequence state
  };
  explicit ShortConvolution(Parts parts) : parts_(std::move(parts)) {}

  [[nodiscard]] LayerState state(const Ops& ops) const override;
  [[nodiscard]] std::size_t bytes() const override;
  [[nodiscard]] std::size_t workspace_bytes(const Ops& ops, std::int64_t tokens, int threads) const override;
  void run(const ForwardContext& context, const float* x, float* out) const override;

 private:
  struct Call;

  // Lays out one call's memory; with a counting arena it tells how much that is.
  Call lay_out(BumpArena& arena, std::int64_t tokens, int threads) const;

  Parts parts_;
};

}  // namespace moracle
