// ERNIE 4.5 MoE: plain norms, pairs to be rotated side by side, softmax routing with a bias that only chooses, shared
// experts, dense layers outside of a range.
#include <vector>

#include "model/architectures/architectures.h"

namespace moracle {

namespace {

// Mixtures are every `moe_layer_interval`-th layer, counted from 1, from a start to an end.
Result<std::vector<bool>> dense_layers(const ModelConfig& config, std::int64_t layers) {
  const JsonReader& reader = config.reader();
  MORACLE_ASSIGN(const std::int64_t start, reader.integer_or("moe_layer_start_index", 1, 0, kMaxLayers));
  MORACLE_ASSIGN(std::int64_t end, reader.integer_or("moe_layer_end_index", -1, -1, kMaxLayers));
  MORACLE_ASSIGN(const std::int64_t interval, reader.integer_or("moe_layer_interval", 1, 1, kMaxLayers));
  if (end == -1) end = layers - 1;
  std::vector<bool> dense;
  for (std::int64_t l = 0; l < layers; ++l) dense.push_back((l + 1) % interval != 0 || l < start || l > end);
  return dense;
}

}  // namespace

// transformers' Ernie4_5_MoeConfig.
constexpr Architecture kErnie45Moe{
    .model_types = {"ernie4_5_moe"},
    .common = {.hidden = 2560,
               .layers = 28,
               .heads = 20,
               .kv_heads = 4,
               .vocabulary = 103424,
               .max_positions = 131072,
               .norm_eps = 1e-5,
               .tied = true},
    .attention = {.bias = {"use_bias", false}},
    .rope = {.theta = 500000.0, .pairwise = true},
    .router = {.scores = Scores::softmax_with_bias,
               .experts = {{"moe_num_experts", "num_experts"}, 64},
               .top_k = {{"moe_k", "num_experts_per_tok"}, 6},
               .renormalize = {{}, true}},
    .moe = {.correction = {".moe_statics.e_score_correction_bias", ".gate.moe_statics.e_score_correction_bias"},
            .intermediate = {{"moe_intermediate_size"}, 1536}},
    .shared = {.path = {".shared_experts"}, .count = {{"moe_num_shared_experts"}, 2, 0}},
    .dense = {.intermediate = {{"intermediate_size"}, 12288}, .read = dense_layers},
    .demands = {{{"moe_use_aux_free", true}, {"moe_gate_act", "softmax"}}},
    .draft_layers = true};

}  // namespace moracle
