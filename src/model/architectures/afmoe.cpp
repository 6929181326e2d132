// AFMoE (Trinity): norms before and behind both parts of a layer, a norm on every head of q and k, a gate on each
// element of what the heads give, layers with a window that alone are rotated, the first layers dense, sigmoid routing
// with a bias, shared experts.
#include <cmath>

#include "model/architectures/architectures.h"

namespace moracle {

// transformers' AfmoeConfig.
constexpr Architecture kAfmoe{.model_types = {"afmoe"},
                              .common = {.hidden = 2048,
                                         .layers = 32,
                                         .heads = 16,
                                         .head_dim = 128,
                                         .vocabulary = 200192,
                                         .max_positions = 16384,
                                         .norm_eps = 1e-5},
                              .norms = {.mixer = ".post_attention_layernorm",
                                        .post = ".pre_mlp_layernorm",
                                        .feed_forward = ".post_mlp_layernorm"},
                              .attention = {.qk_norm = QkNorm::heads,
                                            .windows = Windows::by_kind,
                                            .window = 1024,
                                            .pattern = {{"global_attn_every_n_layers"}, 4},
                                            .wide_gate = ".gate_proj"},
                              .rope = {.in_windows = true},
                              .router = {.scores = Scores::sigmoid,
                                         .experts = {{"num_experts", "num_local_experts"}, 64},
                                         .top_k = {{"num_experts_per_tok"}, 6},
                                         .renormalize = {{}, true},
                                         .grouped = true,
                                         .factor_key = "route_scale"},
                              .moe = {.router = {".router.gate"},
                                      .correction = {".expert_bias"},
                                      .intermediate = {{"moe_intermediate_size"}, 1408}},
                              .shared = {.path = {".shared_experts"}, .count = {{"num_shared_experts"}, 2, 0}},
                              .dense = {.layers = DenseLayers::first,
                                        .intermediate = {{"intermediate_size"}, 6144},
                                        .first = {{"num_dense_layers"}, 1, 0}},
                              .demands = {{{"score_func", "sigmoid"}, {"route_norm", true}}},
                              .hook = [](const ModelConfig& config, const TensorClaims& /*claims*/,
                                         const ModelSettings& settings, ModelSpec& spec) -> Result<> {
                                MORACLE_ASSIGN(const bool scaled, config.reader().boolean_or("mup_enabled", false));
                                if (scaled)
                                  spec.multipliers.embedding = std::sqrt(static_cast<float>(settings.common.hidden));
                                return Ok{};
                              }};

}  // namespace moracle
