// OLMoE: plain norms, a norm over the whole of q and of k before heads are split, softmax routing in every layer.
#include "model/architectures/architectures.h"

namespace moracle {

// transformers' OlmoeConfig.
constexpr Architecture kOlmoe{
    .model_types = {"olmoe"},
    .common = {.hidden = 2048, .layers = 16, .heads = 16, .vocabulary = 50304, .max_positions = 4096, .norm_eps = 1e-5},
    .attention = {.qk_norm = QkNorm::whole, .clip = "clip_qkv"},
    .router = {.experts = {{"num_local_experts", "num_experts"}, 64},
               .top_k = {{"num_experts_per_tok"}, 8},
               .renormalize = {"norm_topk_prob", false}},
    .moe = {.intermediate = {{"intermediate_size"}, 2048}}};

}  // namespace moracle
