// What vLLM's selection of expert kernels is asked: the layer, and what stands around it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "oracle/problem.h"
#include "scheme/routing.h"

namespace moracle::vllm {

// How tokens reach the experts: one list of tokens with their routes, or a padded batch per expert.
enum class ActivationFormat : std::uint8_t { standard, batched };
[[nodiscard]] std::string_view to_string(ActivationFormat format);

// Parameters of the activation as the checkpoint states them; empty: the checkpoint states none.
struct StatedActivation {
  std::optional<float> limit{};
  std::optional<float> alpha{};
  std::optional<float> beta{};
  bool operator==(const StatedActivation&) const = default;
};

struct Question {
  Problem layer{};  // its scheme in vLLM's keys (terms.h)
  Routing routing = Routing::unspecified;
  Element dtype = Element::bf16;  // of activations at the layer's edge, as the model declares
  std::string source_layout{};    // vLLM's word for who packed the checkpoint
  int ep = 1;                     // ranks that hold other experts
  int dp = 1;                     // ranks that hold other tokens
  int sp = 1;                     // ranks that share one sequence
  ActivationFormat activation_format = ActivationFormat::standard;
  std::string all2all{};                         // how expert-parallel ranks exchange tokens; empty: no exchange
  bool load_balancing = false;                   // experts move between ranks at run time (EPLB)
  bool hash_routing = false;                     // routes come from token ids
  bool decomposed_required = false;              // routes are adjusted between the router and the experts
  std::optional<Element> router_logits_dtype{};  // empty: the layer's dtype
  bool lora = false;                             // adapters on the experts
  StatedActivation stated_activation{};
  std::int32_t code_bits = 0;     // of integer codes narrower than their element, 2 to 7; 0: the element's
  std::int32_t source_group = 0;  // group width in the checkpoint, -1: one group a row, where the key does not say
};

struct Policy {
  bool batch_invariant = false;
  std::optional<std::string> pinned{};  // backend name: must serve or nobody does
  // Environment variables, and what a caller states about itself ("caller.may_have_bias"), by name.
  std::vector<std::pair<std::string, std::string>> facts{};
  // False leaves out the texts of reasons and warnings, for callers that ask by the thousand.
  bool explain = true;
};

}  // namespace moracle::vllm
