// Qwen3-Next: the projections of its delta nets are stored by key head, and some layers may be dense.
#include "model/architectures/architectures.h"
#include "model/architectures/qwen_hybrid.h"

namespace moracle {

// transformers' Qwen3NextConfig.
constexpr Architecture kQwen3Next{
    .model_types = {"qwen3_next"},
    .common = {.hidden = 2048,
               .layers = 48,
               .heads = 16,
               .kv_heads = 2,
               .head_dim = 256,
               .vocabulary = 151936,
               .max_positions = 32768,
               .norm_eps = 1e-6},
    .zero_centred_norms = true,
    .attention = kQwenHybridAttention,
    .rope = kQwenHybridRope,
    .router = {.experts = {{"num_experts", "num_local_experts"}, 512, 0},
               .top_k = {{"num_experts_per_tok"}, 10},
               .renormalize = {"norm_topk_prob", true}},
    .moe = kQwenHybridMoe,
    .shared = kQwenHybridShared,
    .dense = {.layers = DenseLayers::by_step, .intermediate = {{"intermediate_size"}, 5632}},
    .hook = [](const ModelConfig& config, const TensorClaims& /*claims*/, const ModelSettings& settings,
               ModelSpec& spec) { return qwen_hybrid_layers(config, settings, spec, true); }};

}  // namespace moracle
