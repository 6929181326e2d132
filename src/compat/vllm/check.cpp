// One class against one question: every rule is checked, whatever the others found.
#include <algorithm>
#include <type_traits>

#include "compat/vllm/experts_class.h"
#include "oracle/rule_texts.h"

namespace moracle::vllm {
namespace {

template <class T>
bool contains(std::span<const T> list, const T& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

void append_key_rule(std::string& out, const KeyRule& rule) {
  append_scheme_rule(out, rule.keys, {});
  if (rule.narrow_codes) out += " of 2 to 7 bits";
  if (rule.any_activation) out += " with any activations";
}

class Checker {
 public:
  Checker(const Question& question, const Machine& machine, const Policy& policy, const ExpertsClass& experts,
          ReasonTexts& texts)
      : question_(question), machine_(machine), policy_(policy), experts_(experts), texts_(texts) {}

  std::vector<LabelledReason> run() {
    refuse(CheckOrder::before_all);
    check_machine();
    check_activation();
    check_scheme();
    check_parallel();
    check_router();
    check_surroundings();
    refuse(CheckOrder::after_all);
    return std::move(reasons_);
  }

 private:
  void refuse(CheckOrder order, std::optional<Rule> rule = std::nullopt) {
    for (const Refusal& refusal : experts_.refusals) {
      if (refusal.order != order || (rule && refusal.rule != *rule)) continue;
      if (const std::optional<LabelledReason> reason = refused(refusal, question_, machine_, policy_, texts_))
        reasons_.push_back(*reason);
    }
  }
  // The refusals that are checked together with a rule.
  void refuse_with(Rule rule) { refuse(CheckOrder::with_rule, rule); }

  // Constant texts, or functions that append one: those are called only where texts are wanted.
  template <class Wanted, class Found>
  void miss(Rule rule, const Wanted& wanted, const Found& found) {
    if (reasons_.empty()) reasons_.reserve(kUsualReasons);
    LabelledReason& reason = reasons_.emplace_back(LabelledReason{{.rule = rule}, {}});
    if (!policy_.explain) return;
    reason.wanted = text_of(wanted);
    reason.found = text_of(found);
  }
  template <class Text>
  std::string_view text_of(const Text& text) {
    static_assert(!std::is_same_v<Text, std::string>, "a reason outlives it");
    if constexpr (std::is_invocable_v<Text, std::string&>) {
      return texts_.written(text);
    } else if constexpr (std::is_invocable_v<Text>) {
      return text();
    } else {
      return text;
    }
  }

  void check_machine() {
    const auto fits = [this](const DeviceRule& rule) { return matches(rule, machine_); };
    if (std::none_of(experts_.devices.begin(), experts_.devices.end(), fits)) {
      miss(
          Rule::device, [&](std::string& out) { append_joined(out, experts_.devices, " or ", append_device_rule); },
          [&](std::string& out) { append_machine(out, machine_); });
    }
    for (const std::string_view library : experts_.libraries) {
      if (!machine_.has_library(library)) miss(rules::library, library, "not on this machine");
    }
    refuse_with(Rule::device);
    refuse_with(rules::library);
  }

  void check_activation() {
    const ActivationFn fn = question_.layer.activation.fn;
    if (!is_gated(fn) && !experts_.ungated) miss(Rule::no_act_and_mul, "experts with a gate", "experts without one");
    if (!contains(experts_.activations, fn)) {
      const auto name = [](std::string& out, ActivationFn f) { out += to_string(f); };
      miss(
          Rule::activation, [&](std::string& out) { append_joined(out, experts_.activations, ", ", name); },
          to_string(fn));
    }
    refuse_with(Rule::activation);
  }

  void check_scheme() {
    const Scheme& scheme = question_.layer.scheme;
    const auto fits = [&](const KeyRule& rule) { return matches(rule, scheme, question_.code_bits); };
    if (std::none_of(experts_.schemes.begin(), experts_.schemes.end(), fits)) {
      miss(
          Rule::quant_scheme, [&](std::string& out) { append_joined(out, experts_.schemes, "; ", append_key_rule); },
          [&] { return texts_.of(scheme); });
    }
    refuse_with(Rule::quant_scheme);
  }

  void check_parallel() {
    const ParallelRule& rule = experts_.parallel;
    const std::string_view all2all = question_.all2all;
    std::string against;
    const auto add = [&against](const std::string& what) { against += (against.empty() ? "" : ", ") + what; };
    if (question_.ep > 1 && !rule.ep) add("ep " + std::to_string(question_.ep));
    if (question_.dp > 1 && !rule.dp) add("dp " + std::to_string(question_.dp));
    if (question_.load_balancing && !rule.load_balancing) add("load balancing");
    const bool accepted = rule.accepted_all2all.empty() || contains(rule.accepted_all2all, all2all);
    if (!all2all.empty() && (!rule.all2all || !accepted || contains(rule.refused_all2all, all2all)))
      add("all2all " + question_.all2all);
    if (!against.empty())
      miss(rules::parallel_config, "a layout without it", [&](std::string& out) { out += against; });
    refuse_with(rules::parallel_config);
  }

  void check_router() {
    if (experts_.router.monolithic) check_own_routing(experts_.router);
    refuse_with(rules::routing);
    refuse_with(rules::router_logits_dtype);
  }

  void check_own_routing(const RouterRule& rule) {
    const Routing routing = question_.routing;
    if ((question_.hash_routing || routing == Routing::hash) && !rule.hash_routing)
      miss(rules::hash_routing, "routes from router logits", "routes from token ids");
    if (question_.decomposed_required && !rule.adjusted_routes)
      miss(rules::decomposed_required, "routing inside the kernel", "routes that are adjusted after routing");
    if (!rule.routings.empty() && !contains(rule.routings, routing)) {
      const auto name = [](std::string& out, Routing r) { out += to_string(r); };
      miss(
          rules::routing, [&](std::string& out) { append_joined(out, rule.routings, ", ", name); }, to_string(routing));
    }
    const Element logits = question_.router_logits_dtype.value_or(question_.dtype);
    if (!rule.logits_dtypes.empty() && !contains(rule.logits_dtypes, logits)) {
      const auto name = [](std::string& out, Element element) { append(out, QuantKey{.element = element}); };
      miss(
          rules::router_logits_dtype, [&](std::string& out) { append_joined(out, rule.logits_dtypes, ", ", name); },
          [&](std::string& out) { name(out, logits); });
    }
  }

  // A rank's slice may be empty.
  void check_present(std::string_view what, std::int64_t value) {
    if (value >= 1) return;
    miss(
        Rule::shape, [what](std::string& out) { out.append(what).append(" a multiple of 1"); },
        [value](std::string& out) { out += std::to_string(value); });
  }

  void check_surroundings() {
    check_present("hidden size", question_.layer.hidden);
    check_present("intermediate size", question_.layer.intermediate);
    refuse_with(Rule::shape);
    if (!experts_.any_activation_format && question_.activation_format != experts_.activation_format) {
      miss(rules::activation_format, to_string(experts_.activation_format), to_string(question_.activation_format));
    }
    if (policy_.batch_invariant && !experts_.batch_invariant) {
      miss(Rule::batch_invariance, "one accumulation order for every batch", "an order that depends on the batch");
    }
    if (question_.lora && !experts_.lora) miss(rules::lora, "no adapters", "adapters on the experts");
  }

  static constexpr std::size_t kUsualReasons = 4;  // of a class that cannot serve

  const Question& question_;
  const Machine& machine_;
  const Policy& policy_;
  const ExpertsClass& experts_;
  ReasonTexts& texts_;
  std::vector<LabelledReason> reasons_;
};

}  // namespace

std::vector<LabelledReason> mismatches(const Question& question, const Machine& machine, const Policy& policy,
                                       const ExpertsClass& experts, ReasonTexts& texts) {
  return Checker(question, machine, policy, experts, texts).run();
}

}  // namespace moracle::vllm
