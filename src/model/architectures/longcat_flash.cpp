// LongCat-Flash: a published layer is two halves of latent attention and a dense MLP. The mixture reads what the first
// half's MLP reads, and is added behind the second. Some of its experts are zero experts.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "model/architectures/architectures.h"
#include "model/spec/parts.h"

namespace moracle {

namespace {

Result<std::int64_t> count_halves(const ModelConfig& config) {
  constexpr std::int64_t kUsual = 28;
  constexpr std::string_view kHalves = "num_hidden_layers";
  const JsonReader& reader = config.reader();
  if (reader.has("num_layers") || !reader.has(kHalves)) {
    MORACLE_ASSIGN(const std::int64_t layers, reader.integer_or("num_layers", kUsual, 1, kMaxLayers / 2));
    return 2 * layers;
  }
  MORACLE_ASSIGN(const std::int64_t halves, reader.integer(kHalves, 2, kMaxLayers));
  if (halves % 2 == 0) return halves;
  return config.error("config.range", kHalves, "two for each layer", std::to_string(halves));
}

// Softmax scores with a bias that only chooses.
Result<RoutingSpec> read_routing(const ModelConfig& config) {
  RoutingSpec routing{.method = Routing::softmax_bias_renorm, .renormalize = false};
  MORACLE_ASSIGN(routing.experts, config.either("n_routed_experts", "num_local_experts", 512, 1, kMaxExperts));
  MORACLE_ASSIGN(routing.top_k,
                 config.either("moe_topk", "num_experts_per_tok", 12, 1, std::min(kMaxTopK, routing.experts)));
  MORACLE_ASSIGN(routing.factor, config.positive("routed_scaling_factor", 6.0, 1e6));
  MORACLE_ASSIGN(routing.zero_experts, config.reader().integer_or("zero_expert_num", 256, 0, kMaxExperts));
  return routing;
}

Result<std::vector<bool>> second_halves(const ModelConfig& /*config*/, std::int64_t layers) {
  std::vector<bool> dense;
  for (std::int64_t l = 0; l < layers; ++l) dense.push_back(l % 2 == 1);
  return dense;
}

// The embedding of n-grams has keys and tensors of its own.
Result<> refuse_n_grams(const ModelConfig& config) {
  for (const std::string_view key : {"ngram_vocab_size_ratio", "emb_neighbor_num", "emb_split_num"}) {
    if (!config.reader().has(key)) continue;
    return config.error("config.unsupported", key, "an embedding of single tokens", "one of n-grams");
  }
  return Ok{};
}

Result<> finish(const ModelConfig& config, const TensorClaims& /*claims*/, const ModelSettings& settings,
                ModelSpec& spec) {
  MORACLE_TRY(refuse_n_grams(config));
  if (settings.q_lora_rank == 0) {
    return config.error("config.unsupported", "q_lora_rank", "a rank of queries", "null");
  }
  MORACLE_TRY(config.only("qk_head_dim", settings.latent.q_head_dim()));
  const auto hidden = static_cast<float>(settings.common.hidden);
  for (std::size_t l = 0; l < spec.layers.size(); ++l) {
    LayerSpec& layer = spec.layers[l];
    auto& attention = std::get<LatentAttentionSpec>(layer.mixer);
    // Both parts of queries are scaled, and so are their scores.
    attention.shape.scale *= std::sqrt(hidden / static_cast<float>(settings.q_lora_rank));
    attention.kv_norm.factor = std::sqrt(hidden / static_cast<float>(settings.latent.kv_lora_rank));
    if (l % 2 == 1) continue;
    auto& moe = std::get<MoeSpec>(layer.feed_forward);
    const auto& second = std::get<DenseSpec>(spec.layers[l + 1].feed_forward);
    const std::string& up = second.up.path;  // "model.layers.0.mlps.1.up_proj"
    const std::string path = up.substr(0, up.rfind(".1.up_proj")) + ".0";
    moe.shared.emplace().mlp =
        dense_spec(path, settings.common.hidden, settings.dense_intermediate, settings.activation);
    moe.late = true;
  }
  return Ok{};
}

}  // namespace

// transformers' LongcatFlashConfig.
constexpr Architecture kLongcatFlash{
    .model_types = {"longcat_flash"},
    .common = {.hidden = 6144,
               .layers = 56,
               .heads = 64,
               .head_dim = 64,
               .vocabulary = 131072,
               .max_positions = 131072,
               .norm_eps = 1e-5},
    .count_layers = count_halves,
    .latent = LatentRow{},
    .rope = {.theta = 1e7},
    .router = {.read = read_routing},
    .moe = {.router = {".router.classifier"},
            .correction = {".router.e_score_correction_bias"},
            .intermediate = {{"expert_ffn_hidden_size", "moe_intermediate_size"}, 2048}},
    .dense = {.path = ".mlps",
              .intermediate = {{"ffn_hidden_size", "intermediate_size"}, 12288},
              .read = second_halves},
    .demands = {{{"attention_method", "MLA"},
                 {"mla_scale_q_lora", true},
                 {"mla_scale_kv_lora", true},
                 {"norm_topk_prob", false},
                 {"rope_interleave", true},
                 {"router_bias", false},
                 {"zero_expert_type", "identity"}}},
    .halves = true,
    .hook = finish};

}  // namespace moracle
