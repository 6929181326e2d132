// Qwen3-MoE: plain norms, a norm on every head of q and k before rope, softmax routing, no shared expert.
#include "model/architectures/architectures.h"

namespace moracle {

// transformers' Qwen3MoeConfig.
constexpr Architecture kQwen3Moe{
    .model_types = {"qwen3_moe"},
    .common = {.hidden = 2048,
               .layers = 24,
               .heads = 32,
               .kv_heads = 4,
               .vocabulary = 151936,
               .max_positions = 32768,
               .norm_eps = 1e-6},
    .attention = {.qk_norm = QkNorm::heads, .windows = Windows::switched},
    .router = {.experts = {{"num_local_experts", "num_experts"}, 128, 0},
               .top_k = {{"num_experts_per_tok"}, 8},
               .renormalize = {"norm_topk_prob", false}},
    .moe = {.intermediate = {{"moe_intermediate_size"}, 768}},
    .dense = {.layers = DenseLayers::by_step, .intermediate = {{"intermediate_size"}, 6144}}};

}  // namespace moracle
