// Qwen3-VL-MoE, the text part: Qwen3-MoE without windows, whose weights are always renormalized and whose stacks of
// experts lie column by column.
#include "model/architectures/architectures.h"

namespace moracle {

// transformers' Qwen3VLMoeTextConfig. Its "mrope_section" splits the frequencies by axis of an image; text has one
// position on all axes.
constexpr Architecture kQwen3VlMoe{
    .model_types = {"qwen3_vl_moe_text", "qwen3_vl_moe"},
    .common = {.hidden = 2048,
               .layers = 24,
               .heads = 16,
               .kv_heads = 16,
               .vocabulary = 151936,
               .max_positions = 128000,
               .norm_eps = 1e-6},
    .attention = {.qk_norm = QkNorm::heads},
    .rope = {.theta = 500000.0},
    .router = {.experts = {{"num_experts", "num_local_experts"}, 60, 0},
               .top_k = {{"num_experts_per_tok"}, 4},
               .renormalize = {{}, true}},
    .moe = {.intermediate = {{"moe_intermediate_size"}, 1408}, .transposed = true},
    .dense = {.layers = DenseLayers::by_step, .intermediate = {{"intermediate_size"}, 5632}},
    .demands = {{{"norm_topk_prob", true}}}};

}  // namespace moracle
