// DeepSeek-V3 and V2, and what is built like them: plain norms, latent attention, the first layers dense, shared
// experts; V3 routes by sigmoid scores in groups, V2 by softmax.
#include <algorithm>
#include <string>
#include <variant>

#include "model/architectures/architectures.h"

namespace moracle {

namespace {

Result<RoutingSpec> v2_routing(const ModelConfig& config) {
  const JsonReader& reader = config.reader();
  MORACLE_TRY(config.only("scoring_func", "softmax"));
  // Published implementations disagree on whether the factor still applies then; no published model asks for it.
  MORACLE_TRY(config.only("norm_topk_prob", false));
  MORACLE_ASSIGN(const std::string method, reader.string_or("topk_method", "greedy"));
  if (method != "greedy" && method != "group_limited_greedy") {
    return config.error("config.unsupported", "topk_method", "greedy or group_limited_greedy", method);
  }
  RoutingSpec routing{.method = Routing::softmax_topk, .renormalize = false};
  MORACLE_ASSIGN(routing.experts, config.either("num_experts", "n_routed_experts", 64, 1, kMaxExperts));
  MORACLE_ASSIGN(routing.top_k, reader.integer("num_experts_per_tok", 1, std::min(kMaxTopK, routing.experts)));
  MORACLE_ASSIGN(routing.factor, config.positive("routed_scaling_factor", 1.0, 1e6));
  if (method == "greedy") return routing;
  routing.method = Routing::grouped_softmax;
  MORACLE_ASSIGN(routing.groups, reader.integer("n_group", 1, routing.experts));
  MORACLE_ASSIGN(routing.top_groups, reader.integer("topk_group", 1, routing.groups));
  return routing;
}

// Dense layers have no norm behind them.
Result<> keep_norms_of_mixtures(const ModelConfig& /*config*/, const TensorClaims& claims,
                                const ModelSettings& /*settings*/, ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers) {
    if (std::holds_alternative<DenseSpec>(layer.feed_forward)) layer.feed_forward_norm = {};
    const std::string inside = layer.path + ".mlp.post_mlp_layernorm";
    if (claims.has_module(inside)) layer.feed_forward_norm.path = inside;
  }
  return Ok{};
}

}  // namespace

// transformers' DeepseekV3Config.
constexpr Architecture kDeepseekV3{
    .model_types = {"deepseek_v3", "kimi_k2"},
    .common = {.hidden = 7168, .layers = 61, .heads = 128, .head_dim = 64, .vocabulary = 129280, .max_positions = 4096},
    .latent = LatentRow{},
    .router = {.scores = Scores::sigmoid,
               .experts = {{"num_local_experts", "n_routed_experts"}, 256},
               .top_k = {{"num_experts_per_tok"}, 8},
               .grouped = true,
               .groups = 8,
               .top_groups = 4,
               .factor_key = "routed_scaling_factor",
               .factor = 2.5},
    .moe = {.correction = {".gate.e_score_correction_bias"}, .intermediate = {{"moe_intermediate_size"}, 2048}},
    .shared = {.path = {".shared_experts"}, .count = {{"n_shared_experts"}, 1, 0}},
    .dense = {.layers = DenseLayers::first,
              .intermediate = {{"intermediate_size"}, 18432},
              .first = {{"first_k_dense_replace"}, 3, 0},
              .step = {{"moe_layer_freq"}, 1}},
    .demands = {{{"mlp_bias", false}, {"scoring_func", "sigmoid"}, {"topk_method", "noaux_tc"}}},
    .draft_layers = true};

// transformers' AXK1Config: a norm more, of what a mixture gives.
constexpr Architecture kAxk1 = [] {
  Architecture row = kDeepseekV3;
  row.model_types = {"axk1"};
  row.common = {.hidden = 7168,
                .layers = 61,
                .heads = 64,
                .head_dim = 64,
                .vocabulary = 163840,
                .max_positions = 32768,
                .norm_eps = 1e-6};
  row.norms.feed_forward = ".post_mlp_layernorm";
  row.router.experts.fallback = 192;
  row.dense.layers = DenseLayers::by_kind;
  row.dense.first.fallback = 1;
  row.hook = keep_norms_of_mixtures;
  return row;
}();

// transformers' SarvamMLAConfig: other sizes and spellings.
constexpr Architecture kSarvamMla = [] {
  Architecture row = kDeepseekV3;
  row.model_types = {"sarvam_mla"};
  row.common = {.hidden = 4096,
                .layers = 32,
                .heads = 64,
                .head_dim = 64,
                .vocabulary = 262144,
                .max_positions = 4096,
                .norm_eps = 1e-6};
  row.latent = LatentRow{.q_lora_rank = 0};
  row.router.experts = {{"n_routed_experts", "num_experts"}, 128};
  row.router.groups = row.router.top_groups = 1;
  row.shared.count = {{"n_shared_experts", "num_shared_experts"}, 1, 0};
  row.dense.intermediate.fallback = 16384;
  row.dense.first.fallback = 1;
  return row;
}();

// transformers' DeepseekV2Config.
constexpr Architecture kDeepseekV2{
    .model_types = {"deepseek_v2"},
    .common = {.hidden = 4096, .layers = 32, .heads = 32, .head_dim = 64, .vocabulary = 102400, .max_positions = 2048},
    .latent = LatentRow{},
    .router = {.read = v2_routing},
    .moe = {.intermediate = {{"moe_intermediate_size"}, 1407}},
    .shared = {.path = {".shared_experts"}, .count = {{"n_shared_experts"}, 2, 0}},
    .dense = {.layers = DenseLayers::first,
              .intermediate = {{"intermediate_size"}, 11008},
              .first = {{"first_k_dense_replace"}, 0, 0},
              .step = {{"moe_layer_freq"}, 1}},
    .demands = {{{"mlp_bias", false}}},
    .draft_layers = true};

}  // namespace moracle
