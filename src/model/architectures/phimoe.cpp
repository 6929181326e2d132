// Phi-3.5-MoE: layer norms with biases, biases in attention, a sparse mixer's routing in every layer, a head with a
// bias.
#include "model/architectures/architectures.h"

namespace moracle {

// transformers' PhimoeConfig.
constexpr Architecture kPhimoe{.model_types = {"phimoe"},
                               .common = {.hidden = 4096,
                                          .layers = 32,
                                          .heads = 32,
                                          .kv_heads = 8,
                                          .vocabulary = 32064,
                                          .max_positions = 131072,
                                          .norm_eps = 1e-5},
                               .norms = {.centred = true},
                               .attention = {.windows = Windows::optional},
                               .rope = {.theta = 1e6},
                               .router = {.scores = Scores::sparse_mixer,
                                          .experts = {{"num_local_experts", "num_experts"}, 16},
                                          .top_k = {{"num_experts_per_tok"}, 2}},
                               .moe = {.path = {"block_sparse_moe", "mlp"},
                                       .router = {".gate", ".router"},
                                       .intermediate = {{"intermediate_size"}, 6400}},
                               .demands = {{{"num_experts_per_tok", 2}}},
                               .hook = [](const ModelConfig& config, const TensorClaims& /*claims*/,
                                          const ModelSettings& /*settings*/, ModelSpec& spec) -> Result<> {
                                 MORACLE_ASSIGN(spec.head.bias, config.reader().boolean_or("lm_head_bias", false));
                                 MORACLE_ASSIGN(const float jitter, config.positive("router_jitter_noise", 0.01, 1.0));
                                 for (LayerSpec& layer : spec.layers)
                                   std::get<MoeSpec>(layer.feed_forward).routing.jitter = jitter;
                                 return Ok{};
                               }};

}  // namespace moracle
