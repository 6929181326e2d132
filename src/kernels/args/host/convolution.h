#pragma once

#include "kernels/args/state.h"

namespace moracle {

// A causal convolution of each channel over time.
struct ConvolutionShape {
  std::int64_t channels = 0;
  std::int64_t kernel = 0;  // taps
  bool silu = false;        // of what it gives

  [[nodiscard]] constexpr std::int64_t state_floats() const { return (kernel - 1) * channels; }
};
static_assert(kPlain<ConvolutionShape>);

// out[t] = gate[t] act(bias + sum_j taps[j] x[t - (kernel - 1) + j] times[...]), channel by channel. A state begins
// with the last kernel - 1 inputs, [kernel - 1, channels].
struct ConvolutionArgs {
  ConvolutionShape shape{};
  std::int64_t tokens = 0;
  const float* x = nullptr;      // [tokens, channels]
  const float* times = nullptr;  // the same, or null: inputs are x
  const float* gate = nullptr;   // the same, or null
  const float* taps = nullptr;   // [kernel, channels], the last for the current token
  const float* bias = nullptr;   // [channels] or null
  BlockMemory states{};
  const RecurrentSpan* spans = nullptr;  // [span_count]
  std::int64_t span_count = 0;
  float* out = nullptr;  // [tokens, channels]
};
static_assert(kPlain<ConvolutionArgs>);

}  // namespace moracle
