// MiniMax-M2: plain norms, a norm over the whole of q and of k, part of each head rotated, sigmoid routing with a bias.
#include "model/architectures/architectures.h"

namespace moracle {

// transformers' MiniMaxM2Config.
constexpr Architecture kMinimaxM2{.model_types = {"minimax_m2"},
                                  .common = {.hidden = 3072,
                                             .layers = 62,
                                             .heads = 48,
                                             .kv_heads = 8,
                                             .head_dim = 128,
                                             .vocabulary = 200064,
                                             .max_positions = 196608,
                                             .norm_eps = 1e-6},
                                  .attention = {.bias = {}, .qk_norm = QkNorm::whole},
                                  .rope = {.theta = 5e6, .dims = "rotary_dim"},
                                  .router = {.scores = Scores::sigmoid,
                                             .experts = {{"num_experts", "num_local_experts"}, 256},
                                             .top_k = {{"num_experts_per_tok"}, 8},
                                             .renormalize = {{}, true}},
                                  .moe = {.path = {"block_sparse_moe", "mlp"},
                                          .correction = {".e_score_correction_bias", ".gate.e_score_correction_bias"},
                                          .intermediate = {{"intermediate_size"}, 1536}},
                                  .demands = {{{"scoring_func", "sigmoid"},
                                               {"use_routing_bias", true},
                                               {"use_qk_norm", true},
                                               {"qk_norm_type", "per_layer"}}},
                                  .draft_layers = true};

}  // namespace moracle
