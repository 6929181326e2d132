// Conditions as data against one question.
#include <algorithm>
#include <string>

#include "oracle/decide.h"
#include "oracle/scheme_rule.h"

namespace moracle {
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

bool holds_for_layout(const Condition& condition, const Problem& problem) {
  return lists(condition.all2alls, std::string_view(problem.all2all)) &&
         agrees(condition.ep, problem.parallel.ep > 1) && agrees(condition.dp, problem.parallel.dp > 1) &&
         agrees(condition.sp, problem.parallel.sp > 1) && agrees(condition.all2all, !problem.all2all.empty()) &&
         agrees(condition.batched, problem.activation_format == ActivationFormat::batched);
}

bool holds_for_activation(const Condition& condition, const Problem& problem) {
  const StatedActivation& stated = problem.stated_activation;
  return lists(condition.activations, problem.activation.fn) &&
         agrees(condition.stated_activation, stated.limit || stated.alpha || stated.beta) &&
         agrees(condition.stated_limit, stated.limit.has_value()) &&
         (!condition.alpha || stated.alpha == condition.alpha) && (!condition.beta || stated.beta == condition.beta);
}

bool holds_for_sizes(const Condition& condition, const Problem& problem) {
  const std::int32_t group = problem.source_group;
  return off_multiple(problem.hidden, condition.hidden_off) &&
         off_multiple(problem.intermediate, condition.intermediate_off) &&
         (condition.group_off == 0 || group <= 0 || group % condition.group_off != 0) &&
         lists(condition.source_groups, group) && problem.experts >= condition.min_experts &&
         (condition.max_top_k == 0 || problem.top_k <= condition.max_top_k);
}

// What of the question a rule looks at.
std::string_view found_text(Rule rule, const Problem& problem, const Machine& machine, ReasonTexts& texts) {
  switch (rule) {
    case Rule::activation:
      return to_string(problem.activation.fn);
    case Rule::quant_scheme:
      return texts.of(problem.scheme);
    case Rule::shape:
      return texts.keep(shape_text(problem));
    case Rule::device:
    case Rule::library:
      return texts.written(
          [&](std::string& out) { out.append(to_string(machine.device)).append(" ") += machine.arch; });
    case Rule::parallel_config:
      return texts.keep("ep " + std::to_string(problem.parallel.ep) + (problem.all2all.empty() ? "" : " over ") +
                        problem.all2all);
    case Rule::routing:
      return to_string(problem.routing);
    case Rule::source_layout:
      return texts.keep((problem.source_layout.empty() ? "unknown" : problem.source_layout) +
                        (problem.interleaved ? ", gate and up rows in turns" : ""));
    case Rule::zero_points:
      if (problem.zero_points) return "zero points";
      [[fallthrough]];
    case Rule::bias:
      return problem.bias ? "a bias" : "a source that may bring a bias";
    case Rule::act_order:
      return problem.act_order ? "reordered columns" : "none";
    case Rule::dtype:
      return texts.keep(to_string(QuantKey{.element = problem.dtype}));
    default:
      return "otherwise";
  }
}

}  // namespace

bool holds(const Condition& condition, const Problem& problem, const Machine& machine, const Policy& policy) {
  const auto accepts = [&problem](const SchemeRule& rule) {
    return scheme_matches(rule, {}, problem.scheme, problem.code_bits);
  };
  return holds_here(condition, machine, policy) && holds_for_layout(condition, problem) &&
         holds_for_activation(condition, problem) && holds_for_sizes(condition, problem) &&
         (condition.schemes.empty() || std::any_of(condition.schemes.begin(), condition.schemes.end(), accepts)) &&
         lists(condition.routings, problem.routing) && lists(condition.dtypes, problem.dtype) &&
         lists(condition.logits_dtypes, problem.router_logits_dtype.value_or(problem.dtype)) &&
         lists(condition.source_layouts, std::string_view(problem.source_layout)) &&
         agrees(condition.bias, problem.bias) && agrees(condition.zero_points, problem.zero_points) &&
         agrees(condition.act_order, problem.act_order) && agrees(condition.interleaved, problem.interleaved) &&
         agrees(condition.lora, problem.lora) &&
         agrees(condition.quantized_activations, problem.scheme.activation.has_value());
}

std::optional<Reason> refused(const Refusal& refusal, const Problem& problem, const Machine& machine,
                              const Policy& policy, ReasonTexts& texts) {
  if (!holds(refusal.when, problem, machine, policy)) return std::nullopt;
  if (refusal.unless && holds(*refusal.unless, problem, machine, policy)) return std::nullopt;
  Reason reason{.rule = refusal.rule, .label = refusal.label};
  if (!policy.explain) return reason;
  reason.wanted = refusal.wanted.empty() ? "something else" : refusal.wanted;
  reason.found = found_text(refusal.rule, problem, machine, texts);
  return reason;
}

}  // namespace moracle
