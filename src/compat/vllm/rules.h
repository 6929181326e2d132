// What vLLM's selection checks beside the rules of Moracle's own.
#pragma once

#include "oracle/card.h"
#include "oracle/rule.h"

namespace moracle::vllm {

namespace rules {
inline constexpr Rule library{"library"};
inline constexpr Rule parallel_config{"parallel_config"};
inline constexpr Rule activation_format{"activation_format"};
inline constexpr Rule routing{"routing"};
inline constexpr Rule hash_routing{"hash_routing"};
inline constexpr Rule decomposed_required{"decomposed_required"};
inline constexpr Rule router_logits_dtype{"router_logits_dtype"};
inline constexpr Rule dtype{"dtype"};
inline constexpr Rule lora{"lora"};
}  // namespace rules

// Of a class whose kernel's layout is secret.
inline constexpr CardKind kDecisionOnly{"decision_only", "capabilities"};

}  // namespace moracle::vllm
