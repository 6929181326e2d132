#include "compat/vllm/condition.h"

#include <algorithm>
#include <string>

#include "oracle/scheme_rule.h"

namespace moracle::vllm {
namespace {

template <class List, class Value>
bool lists(const List& list, const Value& value) {
  return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
}

template <class E>
bool lists(const SetOf<E>& set, E value) {
  return set.empty() || set.has(value);
}

bool agrees(const std::optional<bool>& wanted, bool found) {
  return !wanted || *wanted == found;
}

bool off_multiple(std::int64_t value, std::int64_t multiple) {
  return multiple == 0 || value % multiple != 0;
}

bool states(const Policy& policy, const FactTest& test) {
  const bool equal = std::any_of(policy.facts.begin(), policy.facts.end(), [&test](const auto& fact) {
    return fact.first == test.name && fact.second == test.value;
  });
  return equal == test.equals;
}

bool holds_here(const Condition& condition, const Machine& machine, const Policy& policy) {
  const auto fits = [&machine](const DeviceRule& rule) { return matches(rule, machine); };
  return (condition.devices.empty() || std::any_of(condition.devices.begin(), condition.devices.end(), fits)) &&
         std::all_of(condition.libraries.begin(), condition.libraries.end(),
                     [&machine](std::string_view library) { return machine.has_library(library); }) &&
         std::all_of(condition.facts.begin(), condition.facts.end(),
                     [&policy](const FactTest& test) { return states(policy, test); });
}

bool holds_for_layout(const Condition& condition, const Question& question) {
  return lists(condition.all2alls, std::string_view(question.all2all)) && agrees(condition.ep, question.ep > 1) &&
         agrees(condition.dp, question.dp > 1) && agrees(condition.sp, question.sp > 1) &&
         agrees(condition.all2all, !question.all2all.empty()) &&
         agrees(condition.batched, question.activation_format == ActivationFormat::batched);
}

bool holds_for_activation(const Condition& condition, const Question& question) {
  const StatedActivation& stated = question.stated_activation;
  return lists(condition.activations, question.layer.activation.fn) &&
         agrees(condition.stated_activation, stated.limit || stated.alpha || stated.beta) &&
         agrees(condition.stated_limit, stated.limit.has_value()) &&
         (!condition.alpha || stated.alpha == condition.alpha) && (!condition.beta || stated.beta == condition.beta);
}

bool holds_for_sizes(const Condition& condition, const Question& question) {
  const std::int32_t group = question.source_group;
  return off_multiple(question.layer.hidden, condition.hidden_off) &&
         off_multiple(question.layer.intermediate, condition.intermediate_off) &&
         (condition.group_off == 0 || group <= 0 || group % condition.group_off != 0) &&
         lists(condition.source_groups, group) && question.layer.experts >= condition.min_experts &&
         (condition.max_top_k == 0 || question.layer.top_k <= condition.max_top_k);
}

// What of the question a rule looks at.
std::string_view found_text(Rule rule, const Question& question, const Machine& machine, ReasonTexts& texts) {
  const Problem& layer = question.layer;
  if (rule == Rule::activation) return to_string(layer.activation.fn);
  if (rule == Rule::quant_scheme) return texts.of(layer.scheme);
  if (rule == Rule::shape) return texts.keep(shape_text(layer));
  if (rule == Rule::device || rule == rules::library) {
    return texts.written([&](std::string& out) { out.append(to_string(machine.device)).append(" ") += machine.arch; });
  }
  if (rule == rules::parallel_config) {
    return texts.keep("ep " + std::to_string(question.ep) + (question.all2all.empty() ? "" : " over ") +
                      question.all2all);
  }
  if (rule == rules::routing) return to_string(question.routing);
  if (rule == Rule::source_layout)
    return texts.keep(question.source_layout.empty() ? "unknown" : question.source_layout);
  if (rule == Rule::zero_points && layer.zero_points) return "zero points";
  if (rule == Rule::zero_points || rule == Rule::bias) return layer.bias ? "a bias" : "a source that may bring a bias";
  if (rule == Rule::act_order) return layer.act_order ? "reordered columns" : "none";
  if (rule == rules::dtype) return texts.keep(to_string(QuantKey{.element = question.dtype}));
  return "otherwise";
}

}  // namespace

std::string_view to_string(ActivationFormat format) {
  return format == ActivationFormat::standard ? "standard" : "batched";
}

bool matches(const KeyRule& rule, const Scheme& scheme, std::int32_t code_bits) {
  if (rule.narrow_codes != (code_bits != 0)) return false;
  return rule.any_activation ? weight_matches(rule.keys, {}, scheme.weight) : scheme_matches(rule.keys, {}, scheme);
}

bool holds(const Condition& condition, const Question& question, const Machine& machine, const Policy& policy) {
  const Problem& layer = question.layer;
  const auto accepts = [&question](const KeyRule& rule) {
    return matches(rule, question.layer.scheme, question.code_bits);
  };
  return holds_here(condition, machine, policy) && holds_for_layout(condition, question) &&
         holds_for_activation(condition, question) && holds_for_sizes(condition, question) &&
         (condition.schemes.empty() || std::any_of(condition.schemes.begin(), condition.schemes.end(), accepts)) &&
         lists(condition.routings, question.routing) && lists(condition.dtypes, question.dtype) &&
         lists(condition.logits_dtypes, question.router_logits_dtype.value_or(question.dtype)) &&
         lists(condition.source_layouts, std::string_view(question.source_layout)) &&
         agrees(condition.bias, layer.bias) && agrees(condition.zero_points, layer.zero_points) &&
         agrees(condition.act_order, layer.act_order) && agrees(condition.lora, question.lora) &&
         agrees(condition.quantized_activations, layer.scheme.activation.has_value());
}

std::optional<LabelledReason> refused(const Refusal& refusal, const Question& question, const Machine& machine,
                                      const Policy& policy, ReasonTexts& texts) {
  if (!holds(refusal.when, question, machine, policy)) return std::nullopt;
  if (refusal.unless && holds(*refusal.unless, question, machine, policy)) return std::nullopt;
  LabelledReason reason{{.rule = refusal.rule}, refusal.label};
  if (!policy.explain) return reason;
  reason.wanted = refusal.wanted.empty() ? "something else" : refusal.wanted;
  reason.found = found_text(refusal.rule, question, machine, texts);
  return reason;
}

}  // namespace moracle::vllm
