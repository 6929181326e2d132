// What vLLM would choose for a layer of an opened checkpoint.
#pragma once

#include "base/result.h"
#include "compat/vllm/decide.h"

namespace moracle::vllm {

// The layer and its surroundings as vLLM's integration of the publisher's format would hand them over.
struct Layer {
  const Table* table = nullptr;  // the oracle that this scheme asks
  Question question;
  Policy policy;
};
// `stored`: the layer in Moracle's keys, its routing and dtype, `source_layout` by the name of the publisher's format.
// Errors: "oracle.no_table" for a scheme without an oracle, or a linear layer.
[[nodiscard]] Result<Layer> as_vllm(const Question& stored, const Policy& policy);

}  // namespace moracle::vllm
