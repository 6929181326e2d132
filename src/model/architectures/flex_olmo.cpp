// FlexOlmo: norms behind both parts of a layer and none before them, a norm over the whole of q and of k, softmax
// routing in every layer.
#include "model/architectures/architectures.h"

namespace moracle {

// transformers' FlexOlmoConfig.
constexpr Architecture kFlexOlmo{
    .model_types = {"flex_olmo"},
    .common =
        {.hidden = 4096, .layers = 32, .heads = 32, .vocabulary = 100352, .max_positions = 4096, .norm_eps = 1e-6},
    .norms = {.input = "",
              .mixer = ".post_attention_layernorm",
              .post = "",
              .feed_forward = ".post_feedforward_layernorm"},
    .attention = {.qk_norm = QkNorm::whole},
    .rope = {.theta = 500000.0},
    .router = {.experts = {{"num_local_experts", "num_experts"}, 7},
               .top_k = {{"num_experts_per_tok"}, 5},
               .renormalize = {"norm_topk_prob", false}},
    .moe = {.intermediate = {{"intermediate_size"}, 11008}}};

}  // namespace moracle
