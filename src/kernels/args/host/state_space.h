#pragma once

#include "kernels/args/norm.h"
#include "kernels/args/state.h"

namespace moracle {

// A selective state space: Mamba-2's heads, or Mamba's channels as heads of one number with a rate for each state.
struct StateSpaceShape {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t groups = 0;  // of inputs and outputs of states; divides heads
  std::int64_t states = 0;  // of each number
  bool rate_by_state = false;
  float least_step = 0.0F;  // bounds of a step;
  float most_step = 0.0F;   // 0: none above

  [[nodiscard]] constexpr std::int64_t width() const { return heads * head_dim; }
  [[nodiscard]] constexpr std::int64_t group_width() const { return groups * states; }
  [[nodiscard]] constexpr std::int64_t state_floats() const { return width() * states; }
};
static_assert(kPlain<StateSpaceShape>);

// With d = softplus(step + step_bias) within its bounds and S a state for each number x of a head:
//   S = exp(-rate d) S + d x b;  y = S c + skip x;  out = norm(y silu(gate)), group by group of norm.size numbers
// A layer's share of a state has S behind `state_offset` numbers.
struct StateSpaceArgs {
  StateSpaceShape shape{};
  std::int64_t tokens = 0;
  std::int64_t state_offset = 0;
  const float* x = nullptr;  // [tokens, width], rows `x_stride` apart
  std::int64_t x_stride = 0;
  const float* b = nullptr;  // [tokens, groups, states], rows `b_stride` apart
  const float* c = nullptr;  // the same
  std::int64_t b_stride = 0;
  const float* step = nullptr;       // [tokens, heads]
  const float* gate = nullptr;       // [tokens, width]
  const float* rate = nullptr;       // [heads], or [heads, states] with shape.rate_by_state: exp(A_log)
  const float* skip = nullptr;       // [heads]
  const float* step_bias = nullptr;  // [heads] or null
  NormArgs norm{};                   // weight [width]; size 0: none
  BlockMemory states{};
  const RecurrentSpan* spans = nullptr;  // [span_count]
  std::int64_t span_count = 0;
  float* out = nullptr;  // [tokens, width]
};
static_assert(kPlain<StateSpaceArgs>);

}  // namespace moracle
