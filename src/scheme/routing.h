// The choice of experts from router logits.
#pragma once

#include <cstdint>
#include <string_view>

namespace moracle {

// How experts are chosen from router logits; named as in the field.
enum class Routing : std::uint8_t {
  softmax_topk,  // weights not renormalized
  softmax_topk_renorm,
  topk_softmax,  // gpt-oss
  sigmoid,
  sigmoid_renorm,
  sigmoid_bias_renorm,   // bias only chooses
  grouped_sigmoid_bias,  // DeepSeek-V3 "noaux_tc"
  grouped_softmax,       // DeepSeek-V2
  sqrtsoftplus_bias,     // DeepSeek-V4
  hash,
  topk_sigmoid,         // chosen by logit, weighed by its sigmoid; Llama 4
  softmax_bias_renorm,  // the same bias on probabilities; ERNIE 4.5
  sparse_mixer,         // Phi-3.5-MoE
  unspecified,
};
[[nodiscard]] std::string_view to_string(Routing routing);

}  // namespace moracle
