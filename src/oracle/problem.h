// What the oracle is asked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "scheme/activation.h"
#include "scheme/quant_key.h"

namespace moracle {

enum class ProblemKind : std::uint8_t { experts, linear };

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
  topk_sigmoid,  // chosen by logit, weighed by its sigmoid; Llama 4
  unspecified,
};
[[nodiscard]] std::string_view to_string(Routing routing);

// How tokens reach the experts: one list of tokens with their routes, or a padded batch per expert.
enum class ActivationFormat : std::uint8_t { standard, batched };
[[nodiscard]] std::string_view to_string(ActivationFormat format);

// Ungated experts have w1 alone; there is no up half to multiply with.
[[nodiscard]] constexpr bool is_gated(ActivationFn fn) {
  switch (fn) {
    case ActivationFn::relu2_no_mul:
    case ActivationFn::silu_no_mul:
    case ActivationFn::gelu_no_mul:
    case ActivationFn::gelu_tanh_no_mul:
      return false;
    default:
      return true;
  }
}

// How one layer is spread over ranks.
struct ParallelLayout {
  int tp = 1;
  int ep = 1;
  int dp = 1;
  int sp = 1;  // ranks that share one sequence
  bool operator==(const ParallelLayout&) const = default;
};

// Parameters of the activation as a publisher stated them; empty: not stated, whatever the default is.
struct StatedActivation {
  std::optional<float> limit{};
  std::optional<float> alpha{};
  std::optional<float> beta{};
  bool operator==(const StatedActivation&) const = default;
};

struct Problem {
  ProblemKind kind = ProblemKind::experts;
  Scheme scheme{};
  std::int64_t experts = 1;  // 1 for a linear
  std::int64_t top_k = 1;
  std::int64_t hidden = 0;        // in of a linear; as this rank holds it
  std::int64_t intermediate = 0;  // out of a linear; as this rank holds it
  ActivationSpec activation{};
  Routing routing = Routing::unspecified;
  bool bias = false;
  bool zero_points = false;
  bool act_order = false;
  bool own_up_order = false;      // up has a group index other than gate's in some expert
  bool interleaved = false;       // gate and up rows took turns on disk
  Element dtype = Element::bf16;  // of activations at the layer's edge, as the model declares
  ParallelLayout parallel{};
  std::string source_layout{};  // publisher's format, for rules on where a checkpoint came from
  ActivationFormat activation_format = ActivationFormat::standard;
  std::string all2all{};                         // how expert-parallel ranks exchange tokens; empty: they do not
  bool load_balancing = false;                   // experts move between ranks at run time (EPLB)
  bool hash_routing = false;                     // routes come from token ids, not from logits
  bool decomposed_required = false;              // routes are adjusted between the router and the experts
  std::optional<Element> router_logits_dtype{};  // empty: `dtype`
  bool lora = false;                             // adapters on the experts
  StatedActivation stated_activation{};
  std::int32_t code_bits = 0;     // of integer codes narrower than their element, 2 to 7; 0: the element's
  std::int32_t source_group = 0;  // group width in the checkpoint, -1: one group a row, where the key does not say
  bool operator==(const Problem&) const = default;
};

}  // namespace moracle
