// What Qwen3-Next and Qwen3.5-MoE share: gated delta nets with gated attention in every fourth layer, zero-centred
// norms, softmax routing beside one expert that sees every token.
#pragma once

#include "model/spec/architecture.h"

namespace moracle {

// Puts delta nets where the config has them and a gate on the other layers' attention. `grouped`: projections are
// stored by key head, in_proj_qkvz and in_proj_ba; else in_proj_qkv, _z, _b and _a.
Result<> qwen_hybrid_layers(const ModelConfig& config, const ModelSettings& settings, ModelSpec& spec, bool grouped);

inline constexpr AttentionRow kQwenHybridAttention{.qk_norm = QkNorm::heads};
// The "mrope_section" of Qwen3.5 splits the frequencies by axis of an image; text has one position on all axes.
inline constexpr RopeRow kQwenHybridRope{.rotary_factor = 0.25};
inline constexpr MoeRow kQwenHybridMoe{.intermediate = {{"moe_intermediate_size"}, 512}};
inline constexpr SharedRow kQwenHybridShared{
    .path = {".shared_expert"}, .width = {{"shared_expert_intermediate_size"}, 512}, .gate = ".shared_expert_gate"};

}  // namespace moracle
