// DeepSeek-V3.2 and GLM-5: DeepSeek-V3's layers, whose attention sees index_topk positions that an indexer chooses. Up
// to so many it sees all of them, and the indexer changes nothing: contexts end there, and the indexer is left aside.
#include <algorithm>
#include <string>

#include "model/architectures/architectures.h"

namespace moracle {

namespace {

Result<> leave_indexer(const ModelConfig& config, const TensorClaims& /*claims*/, const ModelSettings& /*settings*/,
                       ModelSpec& spec) {
  MORACLE_ASSIGN(const std::int64_t seen, config.reader().integer_or("index_topk", 2048, 1, kMaxPositions));
  for (const char* linear : {"wq_b", "wk", "weights_proj"}) {
    for (const char* part : {".weight", ".weight_scale_inv", ".weight_scale", ".input_scale"}) {
      spec.ignored.suffixes.push_back(".indexer." + std::string(linear) + part);
    }
  }
  for (const char* part : {".weight", ".bias"}) spec.ignored.suffixes.push_back(".indexer.k_norm" + std::string(part));
  if (seen < spec.info.max_context) {
    config.warn("contexts end at index_topk = " + std::to_string(seen) +
                " positions, up to which attention is dense; the indexer that chooses beyond is not computed");
  }
  spec.info.max_context = std::min(spec.info.max_context, seen);
  return Ok{};
}

}  // namespace

// transformers' DeepseekV32Config.
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
    .hook = leave_indexer};

// transformers' GlmMoeDsaConfig: the same layers of other sizes, whose experts are in one group.
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
  return row;
}();

}  // namespace moracle
