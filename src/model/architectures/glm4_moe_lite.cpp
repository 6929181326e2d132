// GLM-4-MoE-Lite (GLM-4.7-Flash): GLM-4-MoE with the latent attention of DeepSeek-V3.
#include "model/architectures/architectures.h"

namespace moracle {

// transformers' Glm4MoeLiteConfig.
constexpr Architecture kGlm4MoeLite{
    .model_types = {"glm4_moe_lite"},
    .common = {.hidden = 2048,
               .layers = 47,
               .heads = 20,
               .head_dim = 64,
               .vocabulary = 154880,
               .max_positions = 202752,
               .norm_eps = 1e-5},
    .latent = LatentRow{.q_lora_rank = 768,
                        .kv_lora_rank = 512,
                        .qk_nope_head_dim = 192,
                        .qk_rope_head_dim = 64,
                        .v_head_dim = 256},
    .router = {.scores = Scores::sigmoid,
               .experts = {{"num_local_experts", "n_routed_experts"}, 64},
               .top_k = {{"num_experts_per_tok"}, 4},
               .grouped = true,
               .factor_key = "routed_scaling_factor",
               .factor = 1.8},
    .moe = {.correction = {".gate.e_score_correction_bias"}, .intermediate = {{"moe_intermediate_size"}, 1536}},
    .shared = {.path = {".shared_experts"}, .count = {{"n_shared_experts"}, 1, 0}},
    .dense = {.layers = DenseLayers::by_kind,
              .intermediate = {{"intermediate_size"}, 10240},
              .first = {{"first_k_dense_replace"}, 1, 0}},
    .demands = {{{"scoring_func", "sigmoid"}, {"topk_method", "noaux_tc"}}},
    .draft_layers = true};

}  // namespace moracle
