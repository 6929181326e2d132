// dots.llm1: plain norms, a norm on every head of q and k, the first layers dense, sigmoid routing with a bias in
// groups, shared experts.
#include "model/architectures/architectures.h"

namespace moracle {

// transformers' Dots1Config.
constexpr Architecture kDots1{
    .model_types = {"dots1"},
    .common = {.hidden = 4608,
               .layers = 62,
               .heads = 32,
               .kv_heads = 32,
               .vocabulary = 152064,
               .max_positions = 2048,
               .norm_eps = 1e-6},
    .attention = {.qk_norm = QkNorm::heads, .windows = Windows::above_by_kind},
    .router = {.scores = Scores::sigmoid,
               .experts = {{"num_local_experts", "n_routed_experts"}, 128},
               .top_k = {{"num_experts_per_tok"}, 6},
               .renormalize = {"norm_topk_prob", false},
               .grouped = true,
               .factor_key = "routed_scaling_factor"},
    .moe = {.correction = {".gate.e_score_correction_bias"}, .intermediate = {{"moe_intermediate_size"}, 1408}},
    .shared = {.path = {".shared_experts"}, .count = {{"n_shared_experts"}, 0, 0}},
    .dense = {.layers = DenseLayers::first,
              .intermediate = {{"intermediate_size"}, 10944},
              .first = {{"first_k_dense_replace"}, 0, 0}},
    .demands = {{{"topk_method", "noaux_tc"}, {"moe_layer_freq", 1}}}};

}  // namespace moracle
