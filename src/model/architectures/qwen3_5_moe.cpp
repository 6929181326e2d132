// Qwen3.5-MoE and Qwen3.6-MoE, the text part: Qwen3-Next with one projection each, and experts in every layer.
#include "model/architectures/architectures.h"
#include "model/architectures/qwen_hybrid.h"

namespace moracle {

// transformers' Qwen3_5MoeTextConfig.
constexpr Architecture kQwen35Moe{
    .model_types = {"qwen3_5_moe_text", "qwen3_5_moe"},
    .common = {.hidden = 2048,
               .layers = 40,
               .heads = 16,
               .kv_heads = 2,
               .head_dim = 256,
               .vocabulary = 248320,
               .max_positions = 32768,
               .norm_eps = 1e-6},
    .zero_centred_norms = true,
    .attention = kQwenHybridAttention,
    .rope = kQwenHybridRope,
    .router = {.experts = {{"num_experts", "num_local_experts"}, 256},
               .top_k = {{"num_experts_per_tok"}, 8},
               .renormalize = {{}, true}},
    .moe = kQwenHybridMoe,
    .shared = kQwenHybridShared,
    .hook = [](const ModelConfig& config, const TensorClaims& /*claims*/, const ModelSettings& settings,
               ModelSpec& spec) { return qwen_hybrid_layers(config, settings, spec, false); }};

}  // namespace moracle
