// Hy3 (Hunyuan V3): plain norms, a norm on every head of q and k, the first layers dense, sigmoid routing with a bias,
// shared experts.
#include "model/architectures/architectures.h"

namespace moracle {

// transformers' HYV3Config; as published, routers, biases and shared experts have the second names.
constexpr Architecture kHyV3{
    .model_types = {"hy_v3"},
    .common = {.hidden = 4096,
               .layers = 80,
               .heads = 64,
               .kv_heads = 8,
               .head_dim = 128,
               .vocabulary = 120832,
               .max_positions = 131072,
               .norm_eps = 1e-5},
    .attention = {.qk_norm = QkNorm::heads},
    .rope = {.theta = 11158840.0},
    .router = {.scores = Scores::sigmoid,
               .experts = {{"num_local_experts", "num_experts"}, 192},
               .top_k = {{"num_experts_per_tok"}, 8},
               .renormalize = {{}, true},
               .factor_key = "router_scaling_factor",
               .factor = 2.826},
    .moe = {.router = {".gate", ".router.gate"},
            .correction = {".e_score_correction_bias", ".expert_bias"},
            .intermediate = {{"moe_intermediate_size"}, 1536}},
    .shared = {.path = {".shared_experts", ".shared_mlp"}, .count = {{"num_shared_experts"}, 1, 0}},
    .dense = {.layers = DenseLayers::by_kind,
              .intermediate = {{"intermediate_size"}, 13312},
              .first = {{"first_k_dense_replace"}, 1, 0}},
    .demands = {{{"mlp_bias", false}, {"qk_norm", true}, {"route_norm", true}, {"moe_router_use_sigmoid", true}}},
    .draft_layers = true};

}  // namespace moracle
