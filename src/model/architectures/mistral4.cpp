// Mistral 4: latent attention whose queries are scaled by position, softmax routing with renormalized weights, shared
// experts.
#include "model/architectures/architectures.h"

namespace moracle {

namespace {

// Every "original_max_position_embeddings" positions queries grow.
Result<> scale_queries(const ModelConfig& config, const TensorClaims& /*claims*/, const ModelSettings& /*settings*/,
                       ModelSpec& spec) {
  PositionScale scale;
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (!config.reader().has(key)) continue;
    const JsonReader rope(config.reader().json().at(key), config.reader().file(), config.reader().pointer(key));
    if (!rope.json().is_object() || !rope.has("llama_4_scaling_beta")) continue;
    MORACLE_ASSIGN(const double beta, rope.number_or("llama_4_scaling_beta", 0.0, {.low = 0.0, .high = 1e6}));
    MORACLE_ASSIGN(const std::int64_t period, rope.integer("original_max_position_embeddings", 1, kMaxPositions));
    scale = {.beta = static_cast<float>(beta), .period = static_cast<float>(period)};
  }
  for (LayerSpec& layer : spec.layers) std::get<LatentAttentionSpec>(layer.mixer).shape.position_scale = scale;
  return Ok{};
}

}  // namespace

// transformers' Mistral4Config.
constexpr Architecture kMistral4{.model_types = {"mistral4"},
                                 .common = {.hidden = 4096,
                                            .layers = 36,
                                            .heads = 32,
                                            .head_dim = 128,
                                            .vocabulary = 131072,
                                            .max_positions = 1048576,
                                            .norm_eps = 1e-6},
                                 .latent = LatentRow{.q_lora_rank = 1024,
                                                     .kv_lora_rank = 256,
                                                     .qk_nope_head_dim = 64,
                                                     .qk_rope_head_dim = 64,
                                                     .v_head_dim = 128,
                                                     .factor_of_head = true},
                                 .router = {.experts = {{"n_routed_experts", "num_local_experts"}, 128},
                                            .top_k = {{"num_experts_per_tok"}, 4},
                                            .renormalize = {"norm_topk_prob", true},
                                            .factor_key = "routed_scaling_factor"},
                                 .moe = {.intermediate = {{"moe_intermediate_size"}, 2048}},
                                 .shared = {.path = {".shared_experts"}, .count = {{"n_shared_experts"}, 1, 0}},
                                 .dense = {.layers = DenseLayers::first,
                                           .intermediate = {{"intermediate_size"}, 12288},
                                           .first = {{"first_k_dense_replace"}, 0, 0}},
                                 .demands = {{{"n_group", 1}, {"topk_group", 1}, {"mlp_bias", false}}},
                                 .hook = scale_queries};

}  // namespace moracle
