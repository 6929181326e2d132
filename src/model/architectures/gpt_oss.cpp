// gpt-oss: plain norms, attention sinks, every other layer with a sliding window, yarn, biases everywhere, softmax over
// the chosen experts only, a clamped activation.
#include "model/architectures/architectures.h"

namespace moracle {

// transformers' GptOssConfig. Experts are published stacked, rows of gate and up alternating: as blocks of codes, or
// transposed.
constexpr Architecture kGptOss{
    .model_types = {"gpt_oss"},
    .common = {.hidden = 2880,
               .layers = 36,
               .heads = 64,
               .kv_heads = 8,
               .head_dim = 64,
               .vocabulary = 201088,
               .max_positions = 131072,
               .norm_eps = 1e-5},
    .attention = {.bias = {"attention_bias", true}, .windows = Windows::by_kind, .window = 128, .sinks = true},
    .rope = {.theta = 150000.0, .yarn = YarnSpec{.factor = 32.0, .original_positions = 4096.0, .truncate = false}},
    .activation = ActivationFn::swigluoai,
    .router = {.scores = Scores::softmax_of_chosen,
               .experts = {{"num_experts", "num_local_experts"}, 128},
               .top_k = {{"num_experts_per_tok", "experts_per_token"}, 4},
               .renormalize = {}},
    .moe = {.router = {".router"},
            .intermediate = {{"intermediate_size"}, 2880},
            .interleaved = true,
            .transposed = true,
            .bias = true}};

}  // namespace moracle
