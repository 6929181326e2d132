// What Qwen3-Next and Qwen3.5-MoE share: gated delta nets with gated attention in every fourth layer, zero-centred
// norms, softmax routing beside one expert that sees every token.
#pragma once

#include "model/spec/family.h"

namespace moracle {

// Where the families differ; sizes are defaults of their transformers configuration classes.
struct QwenHybrid {
  CommonConfig common{};
  std::int64_t experts = 0;
  std::int64_t top_k = 0;
  bool reads_norm_topk_prob = false;    // false: the weights of the chosen are always renormalized
  std::int64_t dense_intermediate = 0;  // of layers that the config makes dense; 0: every layer has experts
  bool grouped_projections = false;     // in_proj_qkvz and in_proj_ba, by key head; else in_proj_qkv, _z, _b and _a
};

// Errors: "config.type", "config.range", "config.unsupported".
Result<ModelSpec> describe_qwen_hybrid(const ModelConfig& config, const TensorLedger& ledger, const QwenHybrid& family);

}  // namespace moracle
