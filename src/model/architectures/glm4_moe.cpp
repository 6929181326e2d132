// GLM-4-MoE (GLM-4.5 and its successors): plain norms, half of each head rotated, optional norms on heads of q and k,
// the first layers dense, sigmoid routing with a correction bias, shared experts.
#include "model/architectures/architectures.h"

namespace moracle {

// transformers' Glm4MoeConfig.
constexpr Architecture kGlm4Moe{
    .model_types = {"glm4_moe"},
    .common = {.hidden = 4096,
               .layers = 46,
               .heads = 96,
               .kv_heads = 8,
               .vocabulary = 151552,
               .max_positions = 131072,
               .norm_eps = 1e-5},
    .attention = {.output_bias = false, .qk_norm = QkNorm::heads, .has_qk_norm = {"use_qk_norm", false}},
    .rope = {.rotary_factor = 0.5},
    .router = {.scores = Scores::sigmoid,
               .experts = {{"num_local_experts", "n_routed_experts"}, 128},
               .top_k = {{"num_experts_per_tok"}, 8},
               .grouped = true,
               .factor_key = "routed_scaling_factor"},
    .moe = {.correction = {".gate.e_score_correction_bias"}, .intermediate = {{"moe_intermediate_size"}, 1408}},
    .shared = {.path = {".shared_experts"}, .count = {{"n_shared_experts"}, 1, 0}},
    .dense = {.layers = DenseLayers::first,
              .intermediate = {{"intermediate_size"}, 10944},
              .first = {{"first_k_dense_replace"}, 1, 0}},
    .demands = {{{"scoring_func", "sigmoid"}, {"topk_method", "noaux_tc"}}},
    .draft_layers = true};

// transformers' Glm4vMoeTextConfig, the text part of GLM-4.5V and GLM-4.6V. Its "mrope_section" splits the frequencies
// by axis of an image; text has one position on all axes.
constexpr Architecture kGlm4vMoe = [] {
  Architecture row = kGlm4Moe;
  row.model_types = {"glm4v_moe_text", "glm4v_moe"};
  row.common.vocabulary = 151424;
  row.common.max_positions = 65536;
  row.attention.bias.fallback = true;
  row.attention.qk_norm = QkNorm::none;
  row.demands[2] = {"use_qk_norm", false};
  return row;
}();

}  // namespace moracle
