// What the oracle is asked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "scheme/glu.h"
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
  int tp = 1;  // slices of every expert
  int ep = 1;  // whole experts
  bool operator==(const ParallelLayout&) const = default;
};

// `routing`, `dtype`, `parallel` and `source_layout` are facts of the layer for other engines' selections (compat/):
// Moracle's own cards serve them all.
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
  bool interleaved = false;       // gate and up rows alternate on disk
  Element dtype = Element::bf16;  // of activations at the layer's edge, as the model declares
  ParallelLayout parallel{};
  std::string source_layout{};  // publisher's format
  bool operator==(const Problem&) const = default;
};

}  // namespace moracle
