// Qwen2-MoE: plain norms, biases on q, k and v, softmax routing beside one expert that sees every token.
#include "model/architectures/architectures.h"

namespace moracle {

// transformers' Qwen2MoeConfig.
constexpr Architecture kQwen2Moe{
    .model_types = {"qwen2_moe"},
    .common = {.hidden = 2048,
               .layers = 24,
               .heads = 16,
               .kv_heads = 16,
               .vocabulary = 151936,
               .max_positions = 32768,
               .norm_eps = 1e-6},
    .attention = {.bias = {"qkv_bias", true}, .output_bias = false, .windows = Windows::switched_by_kind},
    .router = {.experts = {{"num_local_experts", "num_experts"}, 60, 0},
               .top_k = {{"num_experts_per_tok"}, 4},
               .renormalize = {"norm_topk_prob", false}},
    .moe = {.intermediate = {{"moe_intermediate_size"}, 1408}},
    .shared = {.path = {".shared_expert"},
               .width = {{"shared_expert_intermediate_size"}, 5632},
               .gate = ".shared_expert_gate"},
    .dense = {.layers = DenseLayers::by_step, .intermediate = {{"intermediate_size"}, 5632}}};

}  // namespace moracle
