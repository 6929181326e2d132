#pragma once

#include "kernels/args/norm.h"
#include "kernels/args/rope.h"
#include "kernels/args/state.h"

namespace moracle {

// Grouped-query attention of one layer.
struct AttentionShape {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // divides heads
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;     // of values, where it is another; 0: head_dim
  std::int64_t window = 0;        // positions that a query sees, its own included; 0: all
  float clip = 0.0F;              // bound on q, k and v after the norms; 0: none
  bool element_gate = false;      // q has [q | gate] for each head: a sigmoid gate on each element of the output
  bool wide_gate = false;         // the same gate, of an array of its own
  bool softplus_gates = false;    // softplus in place of the sigmoid, in gates of heads and of arrays of their own
  bool chunked = false;           // windows lie side by side: a query sees the one that it is in, up to itself
  bool pairwise = false;          // pairs to be rotated lie side by side, not half the rotated part apart
  bool norm_behind_rope = false;  // queries and keys are rotated before they are normed
  float scale = 0.0F;             // of the scores; 0: 1 / sqrt(head_dim)
  float qk_eps = 0.0F;            // queries and keys of each head are divided by the root of their mean square + this
                                  // behind the rotation; 0: they are not
  float value_scale = 1.0F;       // values are multiplied by it
  float value_eps = 0.0F;         // values of each head are divided by the root of their mean square + this; 0: not
  PositionScale position_scale{};

  [[nodiscard]] constexpr std::int64_t width() const { return heads * head_dim; }
  [[nodiscard]] constexpr std::int64_t q_width() const { return element_gate ? 2 * width() : width(); }
  [[nodiscard]] constexpr std::int64_t kv_width() const { return kv_heads * head_dim; }
  [[nodiscard]] constexpr std::int64_t value_size() const { return value_dim != 0 ? value_dim : head_dim; }
  [[nodiscard]] constexpr std::int64_t value_width() const { return kv_heads * value_size(); }
  [[nodiscard]] constexpr std::int64_t out_width() const { return heads * value_size(); }
};
static_assert(kPlain<AttentionShape>);

// Norms, rotates and clips queries and keys, appends keys and values to the state, attends and gates. A layer's share
// of a block is as Ops::kv_block_bytes() and the operation of the device have it.
struct AttentionArgs {
  AttentionShape shape{};
  KvType kv = KvType::f32;
  std::int64_t tokens = 0;
  std::int32_t batch_invariant = 0;  // else sums of a token may follow the number of sequences in their order
  NormArgs q_norm{}, k_norm{};       // over head_dim numbers: each head; else over the whole row
  const float* sinks = nullptr;      // [heads] or null
  RopeTable rope{};
  BlockMemory blocks{};
  const KvSpan* spans = nullptr;  // [span_count]
  std::int64_t span_count = 0;
  float* q = nullptr;                // [tokens, q_width]
  float* k = nullptr;                // [tokens, kv_width]
  float* v = nullptr;                // [tokens, value_width]
  const float* head_gate = nullptr;  // [tokens, heads], or null: a sigmoid gate on each head's output
  const float* wide_gate = nullptr;  // [tokens, out_width] with shape.wide_gate
  float* out = nullptr;              // [tokens, out_width]
};
static_assert(kPlain<AttentionArgs>);

}  // namespace moracle
