// Command A MoE: attention and feed-forward in parallel behind one layer norm without a bias, pairs to be rotated side
// by side, full layers that are not rotated, experts whose sum with the shared ones is halved, scaled logits.
#include <algorithm>
#include <string>

#include "model/architectures/architectures.h"
#include "model/spec/parts.h"

namespace moracle {

namespace {

Result<RoutingSpec> read_routing(const ModelConfig& config) {
  const JsonReader& reader = config.reader();
  RoutingSpec routing;
  MORACLE_ASSIGN(routing.experts, config.either("num_experts", "num_local_experts", 8, 1, kMaxExperts));
  MORACLE_ASSIGN(routing.top_k, reader.integer_or("num_experts_per_tok", 2, 1, std::min(kMaxTopK, routing.experts)));
  MORACLE_ASSIGN(const std::string scores, reader.string_or("expert_selection_fn", "softmax"));
  MORACLE_ASSIGN(const bool renormalize, reader.boolean_or("norm_topk_prob", true));
  if (scores != "softmax" && scores != "sigmoid") {
    return config.error("config.unsupported", "expert_selection_fn", "softmax or sigmoid", scores);
  }
  routing.method = scores == "softmax" ? Routing::topk_softmax
                   : renormalize       ? Routing::sigmoid_renorm
                                       : Routing::sigmoid;
  return routing;
}

// Layer norms, unless the config has an epsilon of root mean squares.
Result<> set_norms(const ModelConfig& config, ModelSpec& spec) {
  constexpr const char* kRoot = "rms_norm_eps";
  const bool root = config.reader().has(kRoot);
  MORACLE_ASSIGN(const float eps, config.positive(root ? kRoot : "layer_norm_eps", 1e-5, 1.0));
  const auto set = [&](NormSpec& norm) {
    norm.eps = eps;
    norm.centred = !root;
  };
  set(spec.final_norm);
  for (LayerSpec& layer : spec.layers) set(layer.input_norm);
  return Ok{};
}

// Dense layers at the front are rotated, with a window or without, unless they have a pattern of their own.
Result<> rotate_dense_layers(const ModelConfig& config, ModelSpec& spec) {
  MORACLE_ASSIGN(const std::int64_t pattern,
                 config.reader().integer_or("prefix_dense_sliding_window_pattern", 1, 1, kMaxLayers));
  for (LayerSpec& layer : spec.layers) {
    auto& attention = std::get<AttentionSpec>(layer.mixer);
    if (pattern != 1 || attention.rope || !std::holds_alternative<DenseSpec>(layer.feed_forward)) continue;
    MORACLE_ASSIGN(const RopeSpec rope,
                   parse_rope(config, {.head_dim = attention.shape.head_dim, .max_positions = spec.info.max_context}));
    attention.rope = add_rope(spec, rope);
  }
  return Ok{};
}

Result<> finish(const ModelConfig& config, const TensorClaims& /*claims*/, const ModelSettings& /*settings*/,
                ModelSpec& spec) {
  const JsonReader& reader = config.reader();
  if (!reader.has("layer_types") && reader.has("first_k_dense_replace")) {
    MORACLE_ASSIGN(const std::int64_t dense, reader.integer("first_k_dense_replace", 0, kMaxLayers));
    if (dense > 0) return config.error("config.missing", "layer_types", "the kind of each layer", "none");
  }
  MORACLE_TRY(set_norms(config, spec));
  MORACLE_TRY(rotate_dense_layers(config, spec));
  MORACLE_ASSIGN(spec.multipliers.head, config.positive("logit_scale", 0.0625, 1e6));
  MORACLE_ASSIGN(const std::string sum, reader.string_or("shared_expert_combination_strategy", "average"));
  if (sum != "average" && sum != "sum") {
    return config.error("config.unsupported", "shared_expert_combination_strategy", "average or sum", sum);
  }
  for (LayerSpec& layer : spec.layers) {
    auto* const moe = std::get_if<MoeSpec>(&layer.feed_forward);
    if (moe != nullptr && moe->shared && sum == "average") moe->shared->mean = 0.5F;
  }
  return Ok{};
}

}  // namespace

// transformers' Cohere2MoeConfig.
constexpr Architecture kCohere2Moe{
    .model_types = {"cohere2_moe"},
    .common = {.hidden = 8192,
               .layers = 40,
               .heads = 64,
               .head_dim = 128,
               .vocabulary = 256000,
               .max_positions = 8192,
               .norm_eps = 1e-5,
               .tied = true},
    .norms = {.post = ""},
    .parallel = true,
    .attention = {.windows = Windows::by_kind, .pattern = {{"sliding_window_pattern"}, 4}},
    .rope = {.pairwise = true, .in_windows = true},
    .router = {.read = read_routing},
    .moe = {.intermediate = {{"intermediate_size"}, 22528}},
    .shared = {.path = {".shared_experts"}, .count = {{"num_shared_experts"}, 0, 0}},
    .dense = {.layers = DenseLayers::by_kind,
              .intermediate = {{"prefix_dense_intermediate_size", "intermediate_size"}, 22528},
              .first = {{"first_k_dense_replace"}, 0, 0}},
    .demands = {{{"use_qk_norm", false}}},
    .hook = finish};

}  // namespace moracle
