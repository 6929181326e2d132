// Qwen3-Next: the projections of its delta nets are stored by key head, and some layers may be dense.
#include <array>

#include "model/architectures/architectures.h"
#include "model/architectures/qwen_hybrid.h"

namespace moracle {

namespace {

constexpr std::array<std::string_view, 1> kTypes{"qwen3_next"};

// transformers' Qwen3NextConfig.
constexpr QwenHybrid kQwen3NextDefaults{.common = {.hidden = 2048,
                                                   .layers = 48,
                                                   .heads = 16,
                                                   .kv_heads = 2,
                                                   .head_dim = 256,
                                                   .vocabulary = 151936,
                                                   .max_positions = 32768,
                                                   .norm_eps = 1e-6,
                                                   .tied = false},
                                        .experts = 512,
                                        .top_k = 10,
                                        .reads_norm_topk_prob = true,
                                        .dense_intermediate = 5632,
                                        .grouped_projections = true};

Result<ModelSpec> describe(const ModelConfig& config, const TensorLedger& ledger) {
  return describe_qwen_hybrid(config, ledger, kQwen3NextDefaults);
}

}  // namespace

const Family kQwen3Next{kTypes, describe};

}  // namespace moracle
