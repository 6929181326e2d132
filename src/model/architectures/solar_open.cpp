// Solar Open: plain norms, sigmoid routing with a bias in groups in every layer, shared experts.
#include "model/architectures/architectures.h"

namespace moracle {

// transformers' SolarOpenConfig.
constexpr Architecture kSolarOpen{
    .model_types = {"solar_open"},
    .common = {.hidden = 4096,
               .layers = 48,
               .heads = 64,
               .kv_heads = 8,
               .head_dim = 128,
               .vocabulary = 196608,
               .max_positions = 131072,
               .norm_eps = 1e-5},
    .attention = {.output_bias = false},
    .rope = {.theta = 1e6},
    .router = {.scores = Scores::sigmoid,
               .experts = {{"num_local_experts", "n_routed_experts"}, 128},
               .top_k = {{"num_experts_per_tok"}, 8},
               .grouped = true,
               .factor_key = "routed_scaling_factor"},
    .moe = {.correction = {".gate.e_score_correction_bias"}, .intermediate = {{"moe_intermediate_size"}, 1280}},
    .shared = {.path = {".shared_experts"}, .count = {{"n_shared_experts"}, 1, 0}},
    .demands = {{{"use_qk_norm", false}, {"first_k_dense_replace", 0}}}};

}  // namespace moracle
