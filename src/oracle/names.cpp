// Spelling of the oracle's enums; the rules' is part of the command line's contract.
#include "oracle/decide.h"

namespace moracle {

std::string_view to_string(Routing routing) {
  switch (routing) {
    case Routing::softmax_topk:
      return "softmax_topk";
    case Routing::softmax_topk_renorm:
      return "softmax_topk_renorm";
    case Routing::topk_softmax:
      return "topk_softmax";
    case Routing::sigmoid:
      return "sigmoid";
    case Routing::sigmoid_renorm:
      return "sigmoid_renorm";
    case Routing::sigmoid_bias_renorm:
      return "sigmoid_bias_renorm";
    case Routing::grouped_sigmoid_bias:
      return "grouped_sigmoid_bias";
    case Routing::grouped_softmax:
      return "grouped_softmax";
    case Routing::sqrtsoftplus_bias:
      return "sqrtsoftplus_bias";
    case Routing::hash:
      return "hash";
    case Routing::topk_sigmoid:
      return "topk_sigmoid";
    case Routing::unspecified:
      return "unspecified";
  }
  return "unknown";
}

std::string_view to_string(CardKind kind) {
  switch (kind) {
    case CardKind::own:
      return "own";
    case CardKind::foreign:
      return "foreign";
    case CardKind::decision_only:
      return "decision_only";
  }
  return "unknown";
}

double relative_rounding(InputRounding rounding) {
  constexpr double kRootOf12 = 3.4641016151377544;
  constexpr double kPeak = 11.313708498984761;  // sqrt(128)
  switch (rounding) {
    case InputRounding::none:
      return 0.0;
    case InputRounding::bf16:
      return 1.0 / 512.0;
    case InputRounding::sixteen_bits:
      return kPeak / 32512.0 / kRootOf12;
    case InputRounding::eight_bits:
      return kPeak / 127.0 / kRootOf12;
  }
  return 0.0;
}

std::string_view to_string(Numerics numerics) {
  switch (numerics) {
    case Numerics::exact:
      return "exact";
    case Numerics::fast:
      return "fast";
  }
  return "unknown";
}

std::string_view to_string(Rule rule) {
  switch (rule) {
    case Rule::device:
      return "device";
    case Rule::quant_scheme:
      return "quant_scheme";
    case Rule::activation:
      return "activation";
    case Rule::no_act_and_mul:
      return "no_act_and_mul";
    case Rule::parallel_config:
      return "parallel_config";
    case Rule::activation_format:
      return "activation_format";
    case Rule::shape:
      return "shape";
    case Rule::routing:
      return "routing";
    case Rule::bias:
      return "bias";
    case Rule::zero_points:
      return "zero_points";
    case Rule::act_order:
      return "act_order";
    case Rule::dtype:
      return "dtype";
    case Rule::library:
      return "library";
    case Rule::policy:
      return "policy";
    case Rule::override_:
      return "override";
    case Rule::hash_routing:
      return "hash_routing";
    case Rule::decomposed_required:
      return "decomposed_required";
    case Rule::router_logits_dtype:
      return "router_logits_dtype";
    case Rule::batch_invariance:
      return "batch_invariance";
    case Rule::lora:
      return "lora";
    case Rule::source_layout:
      return "source_layout";
    case Rule::not_built:
      return "not_built";
  }
  return "unknown";
}

}  // namespace moracle
