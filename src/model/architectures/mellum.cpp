// Mellum 2: as Qwen3-MoE, with windows and a rope of their own in layers that layer_types names.
#include "model/architectures/architectures.h"

namespace moracle {

// transformers' MellumConfig.
constexpr Architecture kMellum{
    .model_types = {"mellum"},
    .common = {.hidden = 2304,
               .layers = 28,
               .heads = 32,
               .kv_heads = 4,
               .head_dim = 128,
               .vocabulary = 98304,
               .max_positions = 131072,
               .norm_eps = 1e-6},
    .attention = {.qk_norm = QkNorm::heads, .windows = Windows::by_kind, .window = 1024, .pattern = {{}, 1}},
    .router = {.experts = {{"num_experts", "num_local_experts"}, 64},
               .top_k = {{"num_experts_per_tok"}, 8},
               .renormalize = {"norm_topk_prob", true}},
    .moe = {.intermediate = {{"moe_intermediate_size"}, 896}},
    .dense = {.layers = DenseLayers::by_kind, .intermediate = {{"intermediate_size"}, 7168}, .first = {{}, 0}}};

}  // namespace moracle
