// Mixtral: plain norms, optional sliding window, softmax routing with renormalized weights in every layer.
#include "model/architectures/architectures.h"

namespace moracle {

// transformers' MixtralConfig.
constexpr Architecture kMixtral{
    .model_types = {"mixtral"},
    .common = {.hidden = 4096,
               .layers = 32,
               .heads = 32,
               .kv_heads = 8,
               .vocabulary = 32000,
               .max_positions = 131072,
               .norm_eps = 1e-5},
    .attention = {.bias = {}, .windows = Windows::optional},
    .rope = {.theta = 1e6},
    .router = {.experts = {{"num_experts", "num_local_experts"}, 8},
               .top_k = {{"num_experts_per_tok"}, 2},
               .renormalize = {{}, true}},
    .moe = {.path = {"block_sparse_moe", "mlp"}, .intermediate = {{"intermediate_size"}, 14336}}};

}  // namespace moracle
