#pragma once

#include "kernels/args/norm.h"
#include "kernels/args/state.h"

namespace moracle {

// Gated delta net of one layer. Grouped: rows of `qkvz` and `ba` lie key head by key head, [q | k | v | z] and [b | a].
// Apart: q, k and v are arrays of their own, as are their taps.
struct DeltaNetShape {
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;  // a multiple of key_heads
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t kernel = 0;  // taps of the convolution
  bool grouped = false;
  bool apart = false;
  bool decay_by_channel = false;  // of the key, with as many key heads as value heads; else by value head
  bool sigmoid_gate = false;      // z gates the output by sigmoid(z), else by silu(z)
  float least_decay = 0.0F;       // logarithm of what is kept at least, below 0; 0: there is no bound

  [[nodiscard]] constexpr std::int64_t key_width() const { return key_heads * key_dim; }
  [[nodiscard]] constexpr std::int64_t value_width() const { return value_heads * value_dim; }
  [[nodiscard]] constexpr std::int64_t channels() const { return 2 * key_width() + value_width(); }
  [[nodiscard]] constexpr std::int64_t decays() const { return decay_by_channel ? key_width() : value_heads; }
  [[nodiscard]] constexpr std::int64_t conv_floats() const { return (kernel - 1) * channels(); }
  [[nodiscard]] constexpr std::int64_t state_floats() const { return conv_floats() + key_dim * value_width(); }
};
static_assert(kPlain<DeltaNetShape>);

// A causal convolution over time, then a recurrence. The state is the last kernel - 1 inputs of the convolution
// [kernel - 1, channels], then S of every value head. Grouped rows are brought to the separate form first. A decay is
// exp(-rate softplus(a + dt_bias)), and with a bound exp(least_decay sigmoid(rate (a + dt_bias))).
struct DeltaRuleArgs {
  DeltaNetShape shape{};
  std::int64_t tokens = 0;
  std::int32_t batch_invariant = 0;  // else many tokens of a sequence may be added in another order than few
  const float* taps = nullptr;       // [kernel, channels], the last for the current token; apart: those of q
  const float* k_taps = nullptr;     // apart: [kernel, key_width]
  const float* v_taps = nullptr;     // apart: [kernel, value_width]
  const float* rate = nullptr;       // [value_heads]: exp(A_log)
  const float* dt_bias = nullptr;    // [shape.decays()]
  NormArgs norm{};                   // over value_dim, of each head's output before the gate
  BlockMemory states{};
  const RecurrentSpan* spans = nullptr;  // [span_count]
  std::int64_t span_count = 0;
  // What the projections gave. Grouped: `work` has qkvz, `b` has both b and a.
  float* mixed = nullptr;  // [tokens, channels]: q, k, v of all heads, apart: q of all tokens, then k, then v; at the
                           // end the output [tokens, values]
  float* work = nullptr;   // [tokens, channels], grouped: and values
  float* z = nullptr;      // [tokens, values]
  float* b = nullptr;      // [tokens, value_heads], grouped: twice that
  float* a = nullptr;      // [tokens, shape.decays()]
};
static_assert(kPlain<DeltaRuleArgs>);

}  // namespace moracle
