// What one of vLLM's experts classes declares about the layers that it takes.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "compat/vllm/condition.h"

namespace moracle::vllm {

// How the ranks may share the experts.
struct ParallelRule {
  bool ep = true;  // whole experts, absent ones skipped
  bool dp = true;
  bool load_balancing = true;
  std::span<const std::string_view> refused_all2all{};
  bool all2all = true;                                   // ranks may exchange tokens
  std::span<const std::string_view> accepted_all2all{};  // if any, only by these
};

// Only kernels that route by themselves, from router logits, have anything to say about routing.
struct RouterRule {
  bool monolithic = false;
  std::span<const Routing> routings{};       // empty: any
  std::span<const Element> logits_dtypes{};  // empty: any
  bool hash_routing = false;
  bool adjusted_routes = false;  // also routes that are adjusted after routing
};

struct ExpertsClass {
  // "vllm.MarlinExperts": vLLM's name; a further part after a dot tells two uses of one class apart.
  std::string_view id{};
  std::string_view backend{};                     // what users type
  std::string_view summary{};                     // one line for people
  bool emulation = false;                         // dequantizes the weights on the fly
  std::span<const DeviceRule> devices{};          // one of these
  std::span<const std::string_view> libraries{};  // all of these
  std::span<const KeyRule> schemes{};
  std::span<const ActivationFn> activations{};
  bool batch_invariant = false;
  bool ungated = true;  // also experts without a gate
  ParallelRule parallel{};
  RouterRule router{};
  ActivationFormat activation_format = ActivationFormat::standard;
  bool any_activation_format = false;
  bool lora = false;
  std::span<const Refusal> refusals{};
  // Cards of the layouts that its kernel reads; none: the layout is not public.
  std::span<const KernelCard* const> layouts{};

  [[nodiscard]] CardKind kind() const { return layouts.empty() ? kDecisionOnly : CardKind::external; }
};

// Every mismatch between one class and the question, in vLLM's check order: device, library, no_act_and_mul,
// activation, quant_scheme, parallel_config, hash_routing, decomposed_required, routing, router_logits_dtype, shape,
// activation_format, batch_invariance, lora; refusals before, with or after these, as each says. Pure. The reasons
// refer to `texts` and to the class.
[[nodiscard]] std::vector<LabelledReason> mismatches(const Question& question, const Machine& machine,
                                                     const Policy& policy, const ExpertsClass& experts,
                                                     ReasonTexts& texts);

}  // namespace moracle::vllm
