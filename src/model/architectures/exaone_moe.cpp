// K-EXAONE: plain norms, a norm on every head of q and k, layers with a window that alone are rotated, the first layers
// dense, sigmoid routing with a bias, shared experts.
#include "model/architectures/architectures.h"

namespace moracle {

// transformers' ExaoneMoeConfig.
constexpr Architecture kExaoneMoe{.model_types = {"exaone_moe"},
                                  .common = {.hidden = 4096,
                                             .layers = 32,
                                             .heads = 32,
                                             .kv_heads = 32,
                                             .vocabulary = 102400,
                                             .max_positions = 2048,
                                             .norm_eps = 1e-5},
                                  .attention = {.bias = {},
                                                .qk_norm = QkNorm::heads,
                                                .windows = Windows::by_kind,
                                                .pattern = {{"sliding_window_pattern"}, 4}},
                                  .rope = {.in_windows = true},
                                  .router = {.scores = Scores::sigmoid,
                                             .experts = {{"num_experts", "num_local_experts"}, 64},
                                             .top_k = {{"num_experts_per_tok"}, 8},
                                             .grouped = true,
                                             .factor_key = "routed_scaling_factor",
                                             .factor = 2.5},
                                  .moe = {.correction = {".gate.e_score_correction_bias", ".e_score_correction_bias"},
                                          .intermediate = {{"moe_intermediate_size"}, 1024}},
                                  .shared = {.path = {".shared_experts"}, .count = {{"num_shared_experts"}, 1, 0}},
                                  .dense = {.layers = DenseLayers::by_kind,
                                            .intermediate = {{"intermediate_size"}, 16384},
                                            .first = {{"first_k_dense_replace"}, 1, 0}},
                                  .demands = {{{"scoring_func", "sigmoid"}, {"topk_method", "noaux_tc"}}},
                                  .draft_layers = true};

}  // namespace moracle
