// Hunyuan V1 MoE: plain norms, a norm on every head of q and k behind the rotation, softmax routing with renormalized
// weights beside one shared expert.
#include "model/architectures/architectures.h"

namespace moracle {

// transformers' HunYuanMoEV1Config.
constexpr Architecture kHunyuanV1Moe{
    .model_types = {"hunyuan_v1_moe"},
    .common =
        {.hidden = 4096, .layers = 32, .heads = 32, .vocabulary = 290943, .max_positions = 2048, .norm_eps = 1e-5},
    .attention = {.qk_norm = QkNorm::heads,
                  .has_qk_norm = {"use_qk_norm", true},
                  .qk_names = {".query_layernorm", ".key_layernorm"},
                  .norm_behind_rope = true},
    .router = {.experts = {{"num_experts", "num_local_experts"}, 1},
               .top_k = {{"moe_topk", "num_experts_per_tok"}, 1},
               .renormalize = {{}, true}},
    .moe = {.router = {".gate.wg", ".gate"}, .intermediate = {{"moe_intermediate_size", "intermediate_size"}, 11008}},
    .shared = {.path = {".shared_mlp"}, .width = {{"intermediate_size"}, 11008}},
    .demands = {{{"mlp_bias", false}, {"use_cla", false}, {"use_mixed_mlp_moe", true}, {"norm_topk_prob", true}}}};

}  // namespace moracle
