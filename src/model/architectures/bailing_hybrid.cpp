// Ling 3: Kimi's delta attention with bounded decays, and in the last layer of each group latent attention with gates
// on heads. Ling 2.5 and 2.6 have the same model_type and are other models.
#include <string>
#include <vector>

#include "model/architectures/kda_hybrid.h"
#include "model/spec/parts.h"

namespace moracle {

namespace {

Result<KdaSizes> read_sizes(const ModelConfig& config, const CommonConfig& common) {
  constexpr const char* kBound = "kda_lower_bound";
  const JsonReader& reader = config.reader();
  KdaSizes sizes;
  MORACLE_ASSIGN(sizes.heads, reader.integer_or("linear_num_heads", common.heads, 1, kMaxHeads));
  MORACLE_ASSIGN(const std::int64_t head_dim, reader.integer_or("head_dim", 128, 1, kMaxHeadDim));
  MORACLE_ASSIGN(sizes.head_dim, reader.integer_or("linear_head_dim", head_dim, 1, kMaxHeadDim));
  MORACLE_ASSIGN(sizes.kernel,
                 config.either("short_conv_kernel_size", "linear_conv_kernel_dim", 4, 1, kMaxConvolution));
  MORACLE_ASSIGN(const bool bounded, reader.boolean_or("kda_safe_gate", true));
  if (!bounded) return sizes;
  MORACLE_ASSIGN(const double bound, reader.number_or(kBound, -5.0, {.low = -1e6, .high = -1e-6}));
  sizes.least_decay = static_cast<float>(bound);
  return sizes;
}

// By layer_types, or all but the last layer of each group; of layers behind the last whole group the names tell.
Result<std::vector<bool>> delta_layers(const ModelConfig& config, const TensorClaims& claims, const ModelSpec& spec) {
  const std::int64_t layers = std::ssize(spec.layers);
  MORACLE_ASSIGN(std::vector<bool> delta, listed_kda_layers(config, layers));
  if (!delta.empty()) return delta;
  MORACLE_ASSIGN(const std::int64_t group, config.reader().integer_or("layer_group_size", 6, 1, kMaxLayers));
  for (std::int64_t l = 0; l < layers; ++l) {
    const bool last = (l + 1) % group == 0;
    const bool behind = l >= layers / group * group;
    delta.push_back(behind ? claims.has_module(spec.layers[static_cast<std::size_t>(l)].path + ".attention.q_conv1d")
                           : !last);
  }
  return delta;
}

// Limits of the activation by layer: 0 and null are none.
Result<std::vector<float>> read_limits(const ModelConfig& config, const char* key, std::size_t layers) {
  std::vector<float> limits(layers, 0.0F);
  if (!config.reader().has(key)) return limits;
  const Json& list = config.reader().json().at(key);
  if (!list.is_array()) return config.error("config.type", key, "a list of limits", list.type_name());
  for (std::size_t l = 0; l < std::min(layers, list.size()); ++l) {
    if (list[l].is_null()) continue;
    if (!list[l].is_number() || list[l] < 0 || list[l] > 1e6) {
      return config.error("config.range", key, "numbers from 0 to 1e6", list[l].dump());
    }
    limits[l] = list[l].get<float>();
  }
  return limits;
}

void limit(ActivationSpec& activation, float most) {
  if (most == 0.0F) return;
  activation.fn = ActivationFn::swiglustep;
  activation.limit = most;
}

Result<> limit_experts(const ModelConfig& config, ModelSpec& spec) {
  MORACLE_ASSIGN(const auto routed, read_limits(config, "expert_swiglu_limit_list", spec.layers.size()));
  MORACLE_ASSIGN(const auto shared, read_limits(config, "share_expert_swiglu_limit_list", spec.layers.size()));
  for (std::size_t l = 0; l < spec.layers.size(); ++l) {
    auto* const moe = std::get_if<MoeSpec>(&spec.layers[l].feed_forward);
    if (moe == nullptr) continue;
    limit(moe->activation, routed[l]);
    if (moe->shared) limit(moe->shared->mlp.activation, shared[l]);
  }
  return Ok{};
}

Result<> finish(const ModelConfig& config, const TensorClaims& claims, const ModelSettings& settings, ModelSpec& spec) {
  MORACLE_ASSIGN(const std::vector<bool> delta, delta_layers(config, claims, spec));
  MORACLE_ASSIGN(const KdaSizes sizes, read_sizes(config, settings.common));
  for (std::size_t l = 0; l < spec.layers.size(); ++l) {
    const std::string path = spec.layers[l].path + ".attention";
    if (delta[l] && claims.has_module(path) && !claims.has_module(path + ".q_conv1d")) {
      return config.error("config.unsupported", "model_type", "Ling 3, whose layers have Kimi's delta attention",
                          "lightning attention, as in Ling 2.5: " + path + " has no q_conv1d");
    }
    auto& attention = std::get<LatentAttentionSpec>(spec.layers[l].mixer);
    attention.shape.head_gate = true;
    attention.head_gate = {.path = path + ".g_proj", .out = attention.shape.heads, .in = settings.common.hidden};
  }
  put_kda_layers(sizes, delta, settings.common, claims, ".dense", spec);
  return limit_experts(config, spec);
}

}  // namespace

// transformers' BailingHybridConfig, and the publisher's spellings. The rotated part is all of qk_rope_head_dim,
// whatever partial_rotary_factor says.
constexpr Architecture kBailingHybrid{.model_types = {"bailing_hybrid", "bailing_moe_v3"},
                                      .common = {.hidden = 2560,
                                                 .layers = 42,
                                                 .heads = 32,
                                                 .head_dim = 64,
                                                 .vocabulary = 157184,
                                                 .max_positions = 262144,
                                                 .norm_eps = 1e-6},
                                      .max_positions = "model_max_length",
                                      .embedding = "word_embeddings",
                                      .mixer = ".attention",
                                      .mixer_out = ".dense",
                                      .latent = LatentRow{.q_lora_rank = 0},
                                      .rope = {.theta = 6e6, .whole = true},
                                      .router = {.scores = Scores::sigmoid,
                                                 .experts = {{"num_experts", "num_local_experts"}, 512},
                                                 .top_k = {{"num_experts_per_tok", "num_experts_per_token"}, 8},
                                                 .renormalize = {"norm_topk_prob", true, "moe_renormalize"},
                                                 .grouped = true,
                                                 .group_key = "num_expert_group",
                                                 .groups = 8,
                                                 .top_groups = 4,
                                                 .factor_key = "routed_scaling_factor",
                                                 .factor = 2.5},
                                      .moe = {.correction = {".gate.expert_bias", ".gate.e_score_correction_bias"},
                                              .intermediate = {{"moe_intermediate_size"}, 768}},
                                      .shared = {.path = {".shared_experts"},
                                                 .count = {{"num_shared_experts", "n_shared_experts"}, 1, 0},
                                                 .each = "moe_shared_expert_intermediate_size"},
                                      .dense = {.layers = DenseLayers::by_kind,
                                                .intermediate = {{"intermediate_size"}, 6144},
                                                .first = {{"first_k_dense_replace"}, 2, 0}},
                                      .demands = {{{"hidden_act", "silu"},
                                                   {"use_bias", false},
                                                   {"use_qkv_bias", false},
                                                   {"use_mla_nope", false},
                                                   {"gated_attention_proj_granularity_type", "head_wise"},
                                                   {"no_kda_lora", true},
                                                   {"use_kda_lora", false},
                                                   {"moe_router_enable_expert_bias", true},
                                                   {"score_function", "sigmoid"},
                                                   {"scoring_func", "sigmoid"},
                                                   {"topk_method", "noaux_tc"},
                                                   {"routing_group_score_top_k", std::int64_t{2}},
                                                   {"scale_router_input", false},
                                                   {"up_proj_norm", false},
                                                   {"value_norm", false},
                                                   {"use_nGPT", false}}},
                                      .draft_layers = true,
                                      .hook = finish};

}  // namespace moracle
