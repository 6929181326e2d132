#pragma once

#include "kernels/args/norm.h"
#include "kernels/args/state.h"

namespace moracle {

// Gated delta net of one layer. Grouped: rows of `qkvz` and `ba` lie key head by key head, [q | k | v | z] and [b | a].
struct DeltaNetShape {
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;  // a multiple of key_heads
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t kernel = 0;  // taps of the convolution
  bool grouped = false;

  [[nodiscard]] constexpr std::int64_t key_width() const { return key_heads * key_dim; }
  [[nodiscard]] constexpr std::int64_t value_width() const { return value_heads * value_dim; }
  [[nodiscard]] constexpr std::int64_t channels() const { return 2 * key_width() + value_width(); }
  [[nodiscard]] constexpr std::int64_t conv_floats() const { return (kernel - 1) * channels(); }
  [[nodiscard]] constexpr std::int64_t state_floats() const { return conv_floats() + key_dim * value_width(); }
};
static_assert(kPlain<DeltaNetShape>);

// A causal convolution over time, then a recurrence. The state is the last kernel - 1 inputs of the convolution
// [kernel - 1, channels], then S of every value head. Grouped rows are brought to the separate form first.
struct DeltaRuleArgs {
  DeltaNetShape shape{};
  std::int64_t tokens = 0;
  std::int32_t batch_invariant = 0;  // else many tokens of a sequence may be added in another order than few
  const float* taps = nullptr;       // [kernel, channels], the last for the current token
  const float* rate = nullptr;       // [value_heads]: exp(A_log)
  const float* dt_bias = nullptr;    // [value_heads]
  NormArgs norm{};                   // over value_dim, of each head's output before the gate
  BlockMemory states{};
  const RecurrentSpan* spans = nullptr;  // [span_count]
  std::int64_t span_count = 0;
  // What the projections gave. Grouped: `work` has qkvz, `b` has both b and a.
  float* mixed = nullptr;  // [tokens, channels]: q, k, v of all heads; then the output [tokens, values]
  float* work = nullptr;   // [tokens, channels], grouped: and values
  float* z = nullptr;      // [tokens, values]
  float* b = nullptr;      // [tokens, value_heads], grouped: twice that
  float* a = nullptr;      // [tokens, value_heads]
};
static_assert(kPlain<DeltaRuleArgs>);

}  // namespace moracle
