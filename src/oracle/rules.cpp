// One card against one question: every rule is checked, whatever the others found.
#include <algorithm>
#include <type_traits>

#include "oracle/decide.h"
#include "oracle/rule_texts.h"
#include "oracle/scheme_rule.h"

namespace moracle {
namespace {

template <class T>
bool contains(std::span<const T> list, const T& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

class Checker {
 public:
  Checker(const Problem& problem, const Machine& machine, const Policy& policy, const KernelCard& card,
          ReasonTexts& texts)
      : problem_(problem), machine_(machine), policy_(policy), card_(card), texts_(texts) {}

  std::vector<Reason> run() {
    check_machine();
    if (problem_.kind == ProblemKind::experts) check_activation();
    check_scheme();
    if (problem_.bias && !card_.bias) miss(Rule::bias, "no bias", "a bias");
    check_shape();
    check_surroundings();
    return std::move(reasons_);
  }

 private:
  // Constant texts, or functions that append one.
  template <class Wanted, class Found>
  void miss(Rule rule, const Wanted& wanted, const Found& found) {
    if (reasons_.empty()) reasons_.reserve(kUsualReasons);
    reasons_.push_back({.rule = rule, .wanted = text_of(wanted), .found = text_of(found)});
  }
  template <class Text>
  std::string_view text_of(const Text& text) {
    static_assert(!std::is_same_v<Text, std::string>, "a reason outlives it");
    if constexpr (std::is_invocable_v<Text, std::string&>) {
      return texts_.written(text);
    } else {
      return text;
    }
  }

  void check_machine() {
    const DeviceRule single{.device = card_.device, .cpu_features = card_.cpu_features};
    const std::span<const DeviceRule> rules = card_.devices.empty() ? std::span(&single, 1) : card_.devices;
    const auto fits = [this](const DeviceRule& rule) { return matches(rule, machine_); };
    if (card_.any_device_of_host || std::any_of(rules.begin(), rules.end(), fits)) return;
    miss(
        Rule::device, [&](std::string& out) { append_joined(out, rules, " or ", append_device_rule); },
        [&](std::string& out) { append_machine(out, machine_); });
  }

  void check_activation() {
    const ActivationFn fn = problem_.activation.fn;
    const bool lists_ungated =
        std::any_of(card_.activations.begin(), card_.activations.end(), [](ActivationFn f) { return !is_gated(f); });
    if (!is_gated(fn) && !lists_ungated) miss(Rule::no_act_and_mul, "experts with a gate", "experts without one");
    if (contains(card_.activations, fn)) return;
    const auto name = [](std::string& out, ActivationFn f) { out += to_string(f); };
    miss(Rule::activation, [&](std::string& out) { append_joined(out, card_.activations, ", ", name); }, to_string(fn));
  }

  void check_scheme() {
    const Scheme& scheme = problem_.scheme;
    const auto fits = [&](const SchemeRule& rule) { return scheme_matches(rule, card_.group_sizes, scheme); };
    if (std::none_of(card_.schemes.begin(), card_.schemes.end(), fits)) {
      const auto text = [this](std::string& out, const SchemeRule& rule) {
        append_scheme_rule(out, rule, card_.group_sizes);
      };
      miss(
          Rule::quant_scheme, [&](std::string& out) { append_joined(out, card_.schemes, "; ", text); },
          texts_.of(scheme));
    }
    if (problem_.zero_points && !card_.zero_points) miss(Rule::zero_points, "symmetric weights", "zero points");
    if (problem_.act_order && !card_.act_order) {
      miss(Rule::act_order, "columns in group order", "a group index");
    } else if (problem_.own_up_order && !card_.own_up_order) {
      miss(Rule::act_order, "one group index for gate and up", "another for up");
    }
  }

  // A text that says it.
  static auto number(std::int64_t value) {
    return [value](std::string& out) { out += std::to_string(value); };
  }

  void check_multiple(std::string_view what, std::int64_t value, std::int64_t multiple) {
    if (value >= 1 && (multiple <= 1 || value % multiple == 0)) return;
    miss(
        Rule::shape,
        [&](std::string& out) {
          out.append(what).append(" a multiple of ").append(std::to_string(std::max<std::int64_t>(1, multiple)));
        },
        number(value));
  }

  void check_shape() {
    const bool experts = problem_.kind == ProblemKind::experts;
    if (experts ? !card_.serves_experts : !card_.serves_linear)
      miss(Rule::shape, experts ? "a linear layer" : "experts", experts ? "experts" : "a linear layer");
    check_multiple(experts ? "hidden size" : "inputs", problem_.hidden, card_.hidden_multiple);
    check_multiple(experts ? "intermediate size" : "outputs", problem_.intermediate, card_.intermediate_multiple);
    if (experts && problem_.experts > card_.max_experts) {
      miss(
          Rule::shape, [&](std::string& out) { out += "up to " + std::to_string(card_.max_experts) + " experts"; },
          number(problem_.experts));
    }
    if (!experts || (problem_.top_k >= 1 && problem_.top_k <= card_.max_top_k)) return;
    miss(
        Rule::shape, [&](std::string& out) { out += "top-k from 1 to " + std::to_string(card_.max_top_k); },
        number(problem_.top_k));
  }

  void check_surroundings() {
    if (problem_.interleaved && !card_.interleaved)
      miss(Rule::source_layout, "gate and up rows apart on disk", "gate and up rows interleaved");
    if (policy_.batch_invariant && !card_.batch_invariant) {
      miss(Rule::batch_invariance, "one accumulation order for every batch",
           card_.accumulation.empty() ? std::string_view("an order that depends on the batch") : card_.accumulation);
    }
    if (card_.numerics == Numerics::fast && policy_.numerics == Numerics::exact)
      miss(Rule::policy, "policy fast", "policy exact");
  }

  static constexpr std::size_t kUsualReasons = 4;  // of a card that cannot serve

  const Problem& problem_;
  const Machine& machine_;
  const Policy& policy_;
  const KernelCard& card_;
  ReasonTexts& texts_;
  std::vector<Reason> reasons_;
};

}  // namespace

bool matches(const DeviceRule& rule, const Machine& machine) {
  return rule.device == machine.device && (machine.cpu_features & rule.cpu_features) == rule.cpu_features &&
         (rule.arch.empty() || rule.arch == machine.arch) && machine.capability >= rule.min_capability &&
         machine.capability <= rule.max_capability;
}

std::vector<Reason> mismatches(const Problem& problem, const Machine& machine, const Policy& policy,
                               const KernelCard& card, ReasonTexts& texts) {
  return Checker(problem, machine, policy, card, texts).run();
}

}  // namespace moracle
