// DeepSeek-V3.2 and GLM-5: DeepSeek-V3's layers, whose attention sees index_topk positions that an indexer chooses.
#include <array>
#include <string>
#include <vector>

#include "model/architectures/architectures.h"
#include "model/spec/parts.h"

namespace moracle {

namespace {

constexpr std::string_view kOwn = "full";
constexpr std::array<std::string_view, 2> kKinds{kOwn, "shared"};

// Which layers have an indexer; others share the choice of the one before. By indexer_types, by a pattern of "F" and
// "S", or all but those between the multiples of index_topk_freq.
Result<std::vector<bool>> indexed_layers(const ModelConfig& config, std::int64_t layers) {
  constexpr const char* kPattern = "index_topk_pattern";
  const JsonReader& reader = config.reader();
  std::vector<bool> own;
  MORACLE_ASSIGN(const std::vector<std::string> kinds, config.layer_kinds("indexer_types", layers, kKinds));
  for (const std::string& kind : kinds) own.push_back(kind == kOwn);
  if (own.empty() && reader.has(kPattern)) {
    MORACLE_ASSIGN(const std::string pattern, reader.string_or(kPattern, ""));
    for (const char letter : pattern) own.push_back(letter == 'F');
    if (std::ssize(own) < layers || pattern.find_first_not_of("FS") != std::string::npos) {
      return config.error("config.range", kPattern, "F or S for each of " + std::to_string(layers) + " layers",
                          pattern);
    }
  }
  if (own.empty()) {
    MORACLE_ASSIGN(const std::int64_t step, reader.integer_or("index_topk_freq", 1, 1, kMaxLayers));
    MORACLE_ASSIGN(const std::int64_t offset, reader.integer_or("index_skip_topk_offset", 2, 0, kMaxLayers));
    for (std::int64_t l = 0; l < layers; ++l) own.push_back(std::max<std::int64_t>(l - offset + 1, 0) % step == 0);
  }
  if (!own.front()) return config.error("config.range", "indexer_types", "an indexer in the first layer", "none");
  return own;
}

IndexerSpec indexer(const std::string& path, std::int64_t rank, std::int64_t hidden, const IndexShape& shape) {
  IndexerSpec spec{.q = {.path = path + ".wq_b", .out = shape.heads * shape.dim, .in = rank},
                   .k = {.path = path + ".wk", .out = shape.dim, .in = hidden},
                   .weights = {.path = path + ".weights_proj", .out = shape.heads, .in = hidden},
                   .k_norm = norm_spec(path + ".k_norm", shape.dim, 1e-6),
                   .shape = shape};
  spec.k_norm.centred = spec.k_norm.bias = true;
  return spec;
}

Result<> add_indexers(const ModelConfig& config, const ModelSettings& settings, IndexShape shape, ModelSpec& spec) {
  const JsonReader& reader = config.reader();
  if (settings.q_lora_rank == 0) return config.error("config.unsupported", "q_lora_rank", "a rank of queries", "null");
  MORACLE_ASSIGN(shape.top_k, reader.integer_or("index_topk", 2048, 1, kMaxPositions));
  MORACLE_ASSIGN(shape.dim, reader.integer_or("index_head_dim", 128, 1, kMaxHeadDim));
  MORACLE_ASSIGN(shape.heads, reader.integer_or("index_n_heads", shape.heads, 1, kMaxHeads));
  MORACLE_ASSIGN(const std::vector<bool> own, indexed_layers(config, settings.common.layers));
  shape.rotated = settings.latent.qk_rope_head_dim;
  for (std::size_t l = 0; l < spec.layers.size(); ++l) {
    auto& attention = std::get<LatentAttentionSpec>(spec.layers[l].mixer);
    attention.shape.top_k = shape.top_k;
    if (!own[l]) continue;
    attention.shape.index_dim = shape.dim;
    attention.indexer =
        indexer(spec.layers[l].path + ".self_attn.indexer", settings.q_lora_rank, settings.common.hidden, shape);
  }
  return Ok{};
}

}  // namespace

// transformers' DeepseekV32Config. Its indexer rotates pairs half the rotated part apart.
constexpr Architecture kDeepseekV32{
    .model_types = {"deepseek_v32"},
    .common = {.hidden = 7168,
               .layers = 61,
               .heads = 128,
               .head_dim = 64,
               .vocabulary = 129280,
               .max_positions = 163840,
               .norm_eps = 1e-6},
    .latent = LatentRow{},
    .router = {.scores = Scores::sigmoid,
               .experts = {{"n_routed_experts", "num_local_experts"}, 256},
               .top_k = {{"num_experts_per_tok"}, 8},
               .grouped = true,
               .groups = 8,
               .top_groups = 4,
               .factor_key = "routed_scaling_factor",
               .factor = 2.5},
    .moe = {.correction = {".gate.e_score_correction_bias"}, .intermediate = {{"moe_intermediate_size"}, 2048}},
    .shared = {.path = {".shared_experts"}, .count = {{"n_shared_experts"}, 1, 0}},
    .dense = {.layers = DenseLayers::by_kind,
              .intermediate = {{"intermediate_size"}, 18432},
              .first = {{"first_k_dense_replace"}, 3, 0}},
    .demands = {{{"mlp_bias", false}, {"scoring_func", "sigmoid"}, {"topk_method", "noaux_tc"}, {"moe_layer_freq", 1}}},
    .draft_layers = true,
    .hook = [](const ModelConfig& config, const TensorClaims& /*claims*/, const ModelSettings& settings,
               ModelSpec& spec) { return add_indexers(config, settings, {.heads = 64}, spec); }};

// transformers' GlmMoeDsaConfig: the same layers of other sizes, whose experts are in one group. Its indexer rotates
// pairs side by side, and layers may share the choice of the one before.
constexpr Architecture kGlmMoeDsa = [] {
  Architecture row = kDeepseekV32;
  row.model_types = {"glm_moe_dsa"};
  row.common = {.hidden = 6144,
                .layers = 78,
                .heads = 64,
                .head_dim = 64,
                .vocabulary = 154880,
                .max_positions = 202752,
                .norm_eps = 1e-5};
  row.latent = LatentRow{.q_lora_rank = 2048, .qk_nope_head_dim = 192, .v_head_dim = 256};
  row.router.groups = row.router.top_groups = 1;
  row.dense.intermediate.fallback = 12288;
  row.hook = [](const ModelConfig& config, const TensorClaims& /*claims*/, const ModelSettings& settings,
                ModelSpec& spec) { return add_indexers(config, settings, {.heads = 32, .interleaved = true}, spec); };
  return row;
}();

}  // namespace moracle
