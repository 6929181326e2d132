// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): the keys and values of all heads come from one latent.
#pragma once

#include <memory>
#include <optional>

#include "model/blocks/blocks.h"

namespace moracle {

// What makes keys and values of a latent, kept apart by head so that it can be absorbed: q k = (q W_k) c, and the sum
// over positions is taken of latents, before W_v. f32, because these products are not worth a kernel of their own: a
// model of 671 billion weights has one in this many hundredths of them here.
struct LatentProjection {
  DeviceArray<float> keys{};    // [heads, qk_nope_head_dim, kv_lora_rank]
  DeviceArray<float> values{};  // [heads, kv_lora_rank, v_head_dim]
  InputQuant input{};           // what the linear would do to the latent that it reads

  [[nodiscard]] std::size_t bytes() const { return keys.bytes() + values.bytes(); }
};

// Projections around Ops::index.
struct Indexer {
  std::unique_ptr<PackedLinear> q{};        // null: the layer has none; of the normed rank of queries
  std::unique_ptr<PackedLinear> k{};        // to [dim]
  std::unique_ptr<PackedLinear> weights{};  // to [heads]
  Norm k_norm{};
  IndexShape shape{};

  [[nodiscard]] bool exists() const { return q != nullptr; }
  [[nodiscard]] std::size_t bytes() const {
    return exists() ? q->bytes() + k->bytes() + weights->bytes() + k_norm.bytes() : 0;
  }
};

// Projections around the latent form of Ops::attention.
class LatentAttention final : public Mixer {
 public:
  struct Parts {
    std::unique_ptr<PackedLinear> q_a{};  // null: `q` reads the input itself
    Norm q_norm{};
    std::unique_ptr<PackedLinear> q{};     // to [heads, qk_nope_head_dim + qk_rope_head_dim]
    std::unique_ptr<PackedLinear> kv_a{};  // to [kv_lora_rank + qk_rope_head_dim]
    Norm kv_norm{};
    LatentProjection kv_b{};
    std::unique_ptr<PackedLinear> o{};
    std::unique_ptr<PackedLinear> head_gate{};  // to [heads]; null: none
    Indexer indexer{};
    LatentAttentionShape shape{};
    std::optional<std::size_t> rope{};  // index into ForwardContext::ropes, with shape.rotated
    std::size_t layer = 0;              // index into the sequence state
    KvType kv = KvType::f32;
    bool batch_invariant = false;  // tokens are added in one order for any call
  };
  explicit LatentAttention(Parts parts) : parts_(std::move(parts)) {}

  [[nodiscard]] LayerState state(const Ops& ops) const override;
  [[nodiscard]] std::size_t bytes() const override;
  [[nodiscard]] std::size_t workspace_bytes(const Ops& ops, std::int64_t tokens, int threads) const override;
  [[nodiscard]] std::int64_t selected() const override { return parts_.shape.top_k; }
  void run(const ForwardContext& context, const float* x, float* out) const override;

 private:
  struct Call;

  // Chooses the positions of all tokens, for this layer and those behind it that share its choice.
  void choose(const ForwardContext& context, const Call& call, const float* x) const;

  // Lays out one call's memory; with a counting arena it tells how much that is.
  Call lay_out(BumpArena& arena, const Ops& ops, std::int64_t tokens, int threads) const;

  Parts parts_;
};

}  // namespace moracle
