// Grouped-query attention over paged keys and values.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "model/blocks/blocks.h"

namespace moracle {

// Projections around Ops::attention.
class Attention final : public Mixer {
 public:
  struct Parts {
    std::unique_ptr<PackedLinear> q, k, v, o;
    std::unique_ptr<PackedLinear> head_gate{};  // null, or [heads, hidden]: a sigmoid gate on each head's output
    bool element_gate = false;   // q gives [q | gate] for each head: a sigmoid gate on each element of the output
    Norm q_norm{}, k_norm{};     // weight empty: none; [head_dim]: each head; else the whole vector
    std::vector<float> sinks{};  // [heads] or empty
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
    std::int64_t rotary_dims = 0;  // 0: no rope
    std::int64_t window = 0;
    float clip = 0.0F;      // bound on q, k and v after the norms; 0: none
    std::size_t rope = 0;   // index into ForwardContext::ropes
    std::size_t layer = 0;  // index into the sequence state
    KvType kv = KvType::f32;
  };
  explicit Attention(Parts parts) : parts_(std::move(parts)) {}

  [[nodiscard]] LayerState state() const override;
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
