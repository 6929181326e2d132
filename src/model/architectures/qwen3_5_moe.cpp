// Qwen3.5-MoE and Qwen3.6-MoE, the text part: Qwen3-Next with one projection each, and experts in every layer.
#include <array>

#include "model/architectures/architectures.h"
#include "model/architectures/qwen_hybrid.h"

namespace moracle {

namespace {

constexpr std::array<std::string_view, 2> kTypes{"qwen3_5_moe_text", "qwen3_5_moe"};

// transformers' Qwen3_5MoeTextConfig.
constexpr QwenHybrid kQwen35MoeDefaults{.common = {.hidden = 2048,
                                                   .layers = 40,
                                                   .heads = 16,
                                                   .kv_heads = 2,
                                                   .head_dim = 256,
                                                   .vocabulary = 248320,
                                                   .max_positions = 32768,
                                                   .norm_eps = 1e-6,
                                                   .tied = false},
                                        .experts = 256,
                                        .top_k = 8};

Result<ModelSpec> describe(const ModelConfig& config, const TensorLedger& ledger) {
  return describe_qwen_hybrid(config, ledger, kQwen35MoeDefaults);
}

}  // namespace

const Family kQwen35Moe{kTypes, describe};

}  // namespace moracle
