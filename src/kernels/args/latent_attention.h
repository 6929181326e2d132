#pragma once

#include "kernels/args/matrix.h"
#include "kernels/args/norm.h"
#include "kernels/args/rope.h"
#include "kernels/args/state.h"

namespace moracle {

// Multi-head latent attention of one layer.
struct LatentAttentionShape {
  std::int64_t heads = 0;
  std::int64_t qk_nope_head_dim = 0;
  std::int64_t qk_rope_head_dim = 0;
  std::int64_t v_head_dim = 0;
  std::int64_t kv_lora_rank = 0;
  bool rotated = true;         // else positions leave the parts of qk_rope_head_dim as they are
  bool interleaved = true;     // pairs to be rotated lie side by side, not half a head apart
  bool head_gate = false;      // what a head gives is multiplied by a sigmoid
  float scale = 1.0F;          // of the scores
  std::int64_t top_k = 0;      // positions that a query sees, which an indexer has chosen; 0: all
  std::int64_t index_dim = 0;  // of the indexer's keys, which lie behind the latents of a block; 0: the layer has none
  PositionScale position_scale{};

  [[nodiscard]] constexpr std::int64_t q_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
  [[nodiscard]] constexpr std::int64_t kv_head_dim() const { return qk_nope_head_dim + v_head_dim; }
  [[nodiscard]] constexpr std::int64_t latent_width() const { return kv_lora_rank + qk_rope_head_dim; }
};
static_assert(kPlain<LatentAttentionShape>);

// With the projection of the latent absorbed: appends latents and rotated keys to the state, and attends to them.
struct LatentAttentionArgs {
  LatentAttentionShape shape{};
  KvType kv = KvType::f32;
  std::int64_t tokens = 0;
  std::int32_t batch_invariant = 0;  // else few tokens may be added in another order than many
  NormArgs kv_norm{};                // over the latent
  const float* keys = nullptr;       // [heads, qk_nope_head_dim, kv_lora_rank]
  const float* values = nullptr;     // [heads, kv_lora_rank, v_head_dim]
  InputQuant input{};                // what the projection does to the latent that it reads
  RopeTable rope{};                  // of qk_rope_head_dim / 2, where the shape is rotated
  BlockMemory blocks{};
  const KvSpan* spans = nullptr;  // [span_count]
  std::int64_t span_count = 0;
  const float* q = nullptr;                // [tokens, heads, q_head_dim]
  const float* latents = nullptr;          // [tokens, latent_width]
  const std::int32_t* selected = nullptr;  // [tokens, shape.top_k], as of IndexArgs
  const float* gate = nullptr;             // [tokens, heads], where the shape has one
  float* out = nullptr;                    // [tokens, heads, v_head_dim]
};
static_assert(kPlain<LatentAttentionArgs>);

}  // namespace moracle
