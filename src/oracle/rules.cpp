// One card against one question: every rule is checked, whatever the others found.
#include <algorithm>
#include <type_traits>

#include "oracle/decide.h"
#include "oracle/scheme_rule.h"

namespace moracle {
namespace {

template <class T>
bool contains(std::span<const T> list, const T& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// The texts below are written at the end of `out`, so that a reason is one text without parts of its own.
template <class List, class Write>
void append_joined(std::string& out, const List& list, std::string_view between, Write write) {
  bool first = true;
  for (const auto& item : list) {
    if (!first) out += between;
    first = false;
    write(out, item);
  }
}

void append_text(std::string& out, std::string_view text) {
  out += text;
}

void append_element(std::string& out, Element element) {
  append(out, QuantKey{.element = element});
}

void append_machine(std::string& out, const Machine& machine) {
  out.append(to_string(machine.device)).append(" ").append(machine.arch);
  if (machine.device == DeviceKind::cpu) out.append(" with ").append(feature_list(machine.cpu_features));
}

void append_capability(std::string& out, int value) {
  out.append(std::to_string(value / 10)).append(".").append(std::to_string(value % 10));
}

void append_device(std::string& out, const DeviceRule& rule) {
  out += to_string(rule.device);
  if (!rule.arch.empty()) out.append(" ").append(rule.arch);
  if (rule.cpu_features != 0) out.append(" with ").append(feature_list(rule.cpu_features));
  const bool lowest = rule.min_capability > 0;
  const bool highest = rule.max_capability < 9999;
  if (!lowest && !highest) return;
  out += " of capability";
  if (lowest && highest && rule.min_capability == rule.max_capability) {
    append_capability(out += " ", rule.min_capability);
    return;
  }
  if (lowest) append_capability(out += " from ", rule.min_capability);
  if (highest) append_capability(out += " to ", rule.max_capability);
}

bool same_scale(ScaleType rule, ScaleType found) {
  if (rule != ScaleType::f32) return rule == found;
  return found == ScaleType::f32 || found == ScaleType::f16 || found == ScaleType::bf16;
}

bool weight_matches(const SchemeRule& rule, std::span<const std::int32_t> group_sizes, const QuantKey& key) {
  if (rule.element != key.element || !same_scale(rule.scale, key.scale)) return false;
  if (rule.scale == ScaleType::none) return true;
  const Granularity& granularity = key.granularity;
  if (rule.granularity != granularity.kind || rule.second_level != key.second_level) return false;
  if (!key.symmetric && !rule.allow_asymmetric) return false;
  if (rule.rows != 0 && rule.rows != granularity.rows) return false;
  if (rule.cols != 0) return rule.cols == granularity.cols;
  return rule.granularity != Granularity::Kind::group || group_sizes.empty() || contains(group_sizes, granularity.cols);
}

// As to_string(QuantKey) spells a key, with every accepted width.
void append_rule(std::string& out, const SchemeRule& rule, std::span<const std::int32_t> group_sizes) {
  QuantKey key{.element = rule.element,
               .scale = rule.scale,
               .granularity = {rule.granularity, rule.rows, rule.cols},
               .second_level = rule.second_level};
  const std::size_t begin = out.size();
  const auto respell = [&out, begin](std::string_view from, std::string_view to) {
    const std::size_t at = out.find(from, begin);
    if (at != std::string::npos) out.replace(at, from.size(), to);
  };
  const bool any_width = rule.granularity == Granularity::Kind::group && rule.cols == 0;
  if (any_width) key.granularity = Granularity::channel();
  append(out, key);
  if (rule.granularity == Granularity::Kind::block) respell(" block 0x0", " block");
  if (any_width && group_sizes.empty()) {
    respell(" channel", " group");
  } else if (any_width) {
    std::string widths = " g";
    append_joined(widths, group_sizes, "/", [](std::string& to, std::int32_t width) { to += std::to_string(width); });
    respell(" channel", widths);
  }
  if (rule.allow_asymmetric && rule.scale != ScaleType::none) out += " sym or asym";
  if (rule.narrow_codes) out += " of 2 to 7 bits";
  if (rule.any_activation) out += " with any activations";
  if (rule.activation) {
    append(out += " with ", rule.activation_key);
    out += " activations";
  }
}

class Checker {
 public:
  Checker(const Problem& problem, const Machine& machine, const Policy& policy, const KernelCard& card,
          ReasonTexts& texts)
      : problem_(problem), machine_(machine), policy_(policy), card_(card), texts_(texts) {}

  std::vector<Reason> run() {
    refuse(CheckOrder::before_all);
    check_machine();
    if (problem_.kind == ProblemKind::experts) check_activation();
    check_scheme();
    if (problem_.kind == ProblemKind::experts) {
      check_parallel();
      check_router();
    }
    check_edge();
    check_shape();
    check_surroundings();
    refuse(CheckOrder::after_all);
    return std::move(reasons_);
  }

 private:
  void refuse(CheckOrder order, std::optional<Rule> rule = std::nullopt) {
    for (const Refusal& refusal : card_.refusals) {
      if (refusal.order != order || (rule && refusal.rule != *rule)) continue;
      if (const std::optional<Reason> reason = refused(refusal, problem_, machine_, policy_, texts_))
        reasons_.push_back(*reason);
    }
  }
  // The refusals that are checked together with a rule.
  void refuse_with(Rule rule) { refuse(CheckOrder::with_rule, rule); }

  // Constant texts, functions that append one, or functions that know one: they are made where they are wanted.
  template <class Wanted, class Found>
  void miss(Rule rule, const Wanted& wanted, const Found& found) {
    if (reasons_.empty()) reasons_.reserve(kUsualReasons);
    Reason& reason = reasons_.emplace_back(Reason{.rule = rule});
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
    const DeviceRule single{.device = card_.device, .cpu_features = card_.cpu_features};
    const std::span<const DeviceRule> rules = card_.devices.empty() ? std::span(&single, 1) : card_.devices;
    const bool fits = card_.any_device_of_host || std::any_of(rules.begin(), rules.end(), [this](const DeviceRule& r) {
                        return matches(r, machine_);
                      });
    if (!fits) {
      miss(
          Rule::device, [&](std::string& out) { append_joined(out, rules, " or ", append_device); },
          [&](std::string& out) { append_machine(out, machine_); });
    }
    for (const std::string_view library : card_.libraries) {
      if (!machine_.has_library(library)) miss(Rule::library, library, "not on this machine");
    }
    refuse_with(Rule::device);
    refuse_with(Rule::library);
  }

  void check_activation() {
    const ActivationFn fn = problem_.activation.fn;
    const bool lists_ungated =
        std::any_of(card_.activations.begin(), card_.activations.end(), [](ActivationFn f) { return !is_gated(f); });
    if (!is_gated(fn) && !card_.ungated.value_or(lists_ungated))
      miss(Rule::no_act_and_mul, "experts with a gate", "experts without one");
    if (!contains(card_.activations, fn)) {
      const auto name = [](std::string& out, ActivationFn f) { out += to_string(f); };
      miss(
          Rule::activation, [&](std::string& out) { append_joined(out, card_.activations, ", ", name); },
          to_string(fn));
    }
    refuse_with(Rule::activation);
  }

  void check_scheme() {
    const Scheme& scheme = problem_.scheme;
    const auto fits = [&](const SchemeRule& rule) {
      return scheme_matches(rule, card_.group_sizes, scheme, problem_.code_bits);
    };
    if (std::none_of(card_.schemes.begin(), card_.schemes.end(), fits)) {
      const auto text = [this](std::string& out, const SchemeRule& rule) { append_rule(out, rule, card_.group_sizes); };
      miss(
          Rule::quant_scheme, [&](std::string& out) { append_joined(out, card_.schemes, "; ", text); },
          [&] { return texts_.of(scheme); });
    }
    refuse_with(Rule::quant_scheme);
    if (problem_.zero_points && !card_.zero_points) miss(Rule::zero_points, "symmetric weights", "zero points");
    if (problem_.act_order && !card_.act_order) {
      miss(Rule::act_order, "columns in group order", "a group index");
    } else if (problem_.own_up_order && !card_.own_up_order) {
      miss(Rule::act_order, "one group index for gate and up", "another for up");
    }
  }

  void check_parallel() {
    const ParallelRule& rule = card_.parallel;
    const ParallelLayout& layout = problem_.parallel;
    std::string against;
    const auto add = [&against](const std::string& what) { against += (against.empty() ? "" : ", ") + what; };
    if (layout.tp > 1 && !rule.tp) add("tp " + std::to_string(layout.tp));
    if (layout.ep > 1 && !rule.ep) add("ep " + std::to_string(layout.ep));
    if (layout.dp > 1 && !rule.dp) add("dp " + std::to_string(layout.dp));
    if (problem_.load_balancing && !rule.load_balancing) add("load balancing");
    const std::string_view all2all = problem_.all2all;
    const bool accepted = rule.accepted_all2all.empty() || contains(rule.accepted_all2all, all2all);
    if (!all2all.empty() && (!rule.all2all || !accepted || contains(rule.refused_all2all, all2all)))
      add("all2all " + problem_.all2all);
    if (!against.empty()) miss(Rule::parallel_config, "a layout without it", [&](std::string& out) { out += against; });
    refuse_with(Rule::parallel_config);
  }

  void check_router() {
    const RouterRule& rule = card_.router;
    if (rule.monolithic) check_own_routing(rule);
    refuse_with(Rule::routing);
    refuse_with(Rule::router_logits_dtype);
  }

  void check_own_routing(const RouterRule& rule) {
    if ((problem_.hash_routing || problem_.routing == Routing::hash) && !rule.hash_routing)
      miss(Rule::hash_routing, "routes from router logits", "routes from token ids");
    if (problem_.decomposed_required && !rule.adjusted_routes)
      miss(Rule::decomposed_required, "routing inside the kernel", "routes that are adjusted after routing");
    if (!rule.routings.empty() && !contains(rule.routings, problem_.routing)) {
      const auto name = [](std::string& out, Routing r) { out += to_string(r); };
      miss(
          Rule::routing, [&](std::string& out) { append_joined(out, rule.routings, ", ", name); },
          to_string(problem_.routing));
    }
    const Element logits = problem_.router_logits_dtype.value_or(problem_.dtype);
    if (!rule.logits_dtypes.empty() && !contains(rule.logits_dtypes, logits))
      miss_element(Rule::router_logits_dtype, rule.logits_dtypes, logits);
  }

  void check_edge() {
    if (!card_.dtypes.empty() && !contains(card_.dtypes, problem_.dtype))
      miss_element(Rule::dtype, card_.dtypes, problem_.dtype);
    if (problem_.bias && !card_.bias) miss(Rule::bias, "no bias", "a bias");
  }

  // A text that says it.
  static auto number(std::int64_t value) {
    return [value](std::string& out) { out += std::to_string(value); };
  }

  void miss_element(Rule rule, std::span<const Element> wanted, Element found) {
    miss(
        rule, [&](std::string& out) { append_joined(out, wanted, ", ", append_element); },
        [&](std::string& out) { append_element(out, found); });
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
    refuse_with(Rule::shape);
    if (!experts) return;
    if (problem_.top_k < card_.min_top_k || problem_.top_k > card_.max_top_k) {
      miss(
          Rule::shape,
          [&](std::string& out) {
            out += "top-k from " + std::to_string(card_.min_top_k) + " to " + std::to_string(card_.max_top_k);
          },
          number(problem_.top_k));
    }
    if (card_.max_experts > 0 && problem_.experts > card_.max_experts) {
      miss(
          Rule::shape, [&](std::string& out) { out += "at most " + std::to_string(card_.max_experts) + " experts"; },
          number(problem_.experts));
    }
  }

  void check_surroundings() {
    if (problem_.kind == ProblemKind::experts && !card_.any_activation_format &&
        problem_.activation_format != card_.activation_format) {
      miss(Rule::activation_format, to_string(card_.activation_format), to_string(problem_.activation_format));
    }
    const std::string_view layout = problem_.source_layout;
    const auto found = [layout](std::string& out) { out += layout.empty() ? "unknown" : layout; };
    if (!card_.source_layouts.empty() && !contains(card_.source_layouts, layout)) {
      miss(
          Rule::source_layout, [&](std::string& out) { append_joined(out, card_.source_layouts, ", ", append_text); },
          found);
    } else if (contains(card_.refused_layouts, layout)) {
      miss(
          Rule::source_layout,
          [&](std::string& out) { append_joined(out += "not ", card_.refused_layouts, ", ", append_text); }, found);
    }
    if (policy_.batch_invariant && !card_.batch_invariant) {
      miss(Rule::batch_invariance, "one accumulation order for every batch",
           card_.accumulation.empty() ? std::string_view("an order that depends on the batch") : card_.accumulation);
    }
    if (problem_.lora && !card_.lora) miss(Rule::lora, "no adapters", "adapters on the experts");
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

bool scheme_matches(const SchemeRule& rule, std::span<const std::int32_t> group_sizes, const Scheme& scheme,
                    std::int32_t code_bits) {
  if (rule.narrow_codes != (code_bits != 0) || !weight_matches(rule, group_sizes, scheme.weight)) return false;
  if (rule.any_activation) return true;
  return rule.activation ? scheme.activation == rule.activation_key : !scheme.activation.has_value();
}

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
