#include "moe/routing.h"

#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "base/checked.h"

namespace moracle {

namespace {

enum class Renorm : std::uint8_t { never, always, as_configured };

// What the router computes, one row a method.
struct Method {
  RouteScore score;
  RouteGroups group;
  RouteWeight weight;
  Renorm renorm;
};

Method method_of(Routing routing) {
  switch (routing) {
    case Routing::softmax_topk:
      return {RouteScore::softmax, RouteGroups::none, RouteWeight::score, Renorm::never};
    case Routing::softmax_topk_renorm:
      return {RouteScore::softmax, RouteGroups::none, RouteWeight::score, Renorm::always};
    case Routing::topk_softmax:
      return {RouteScore::logit, RouteGroups::none, RouteWeight::softmax_of_chosen, Renorm::never};
    case Routing::sigmoid:
      return {RouteScore::sigmoid, RouteGroups::none, RouteWeight::score, Renorm::never};
    case Routing::sigmoid_renorm:
      return {RouteScore::sigmoid, RouteGroups::none, RouteWeight::score, Renorm::always};
    case Routing::sigmoid_bias_renorm:
      return {RouteScore::sigmoid, RouteGroups::none, RouteWeight::score, Renorm::as_configured};
    case Routing::grouped_sigmoid_bias:
      return {RouteScore::sigmoid, RouteGroups::best_two, RouteWeight::score, Renorm::as_configured};
    case Routing::grouped_softmax:
      return {RouteScore::softmax, RouteGroups::best, RouteWeight::score, Renorm::as_configured};
    case Routing::sqrtsoftplus_bias:
    case Routing::hash:
      return {RouteScore::sqrt_softplus, RouteGroups::none, RouteWeight::score, Renorm::as_configured};
    case Routing::topk_sigmoid:
      return {RouteScore::logit, RouteGroups::none, RouteWeight::sigmoid_of_logit, Renorm::never};
    case Routing::softmax_bias_renorm:
      return {RouteScore::softmax, RouteGroups::none, RouteWeight::score, Renorm::as_configured};
    case Routing::sparse_mixer:
      return {RouteScore::logit, RouteGroups::none, RouteWeight::sparse_mixer, Renorm::never};
    case Routing::unspecified:
      break;
  }
  return {RouteScore::softmax, RouteGroups::none, RouteWeight::score, Renorm::always};
}

Result<> require(bool holds, std::string_view member, std::string wanted, std::string found) {
  if (holds) return Ok{};
  return Error{
      .code = "config.range", .where = std::string(member), .wanted = std::move(wanted), .found = std::move(found)};
}

std::string up_to(std::int64_t most, const char* what) {
  return "1 to " + std::to_string(most) + what;
}

}  // namespace

Result<> validate(const RoutingSpec& spec) {
  MORACLE_TRY(require(spec.experts >= 1, "experts", "at least one expert", std::to_string(spec.experts)));
  MORACLE_TRY(require(spec.groups >= 1 && spec.groups <= spec.experts && spec.experts % spec.groups == 0, "groups",
                      "a divisor of " + std::to_string(spec.experts) + " experts", std::to_string(spec.groups)));
  MORACLE_TRY(require(spec.top_groups >= 1 && spec.top_groups <= spec.groups, "top_groups",
                      up_to(spec.groups, ", the number of groups"), std::to_string(spec.top_groups)));
  const std::int64_t eligible = spec.experts / spec.groups * spec.top_groups;
  MORACLE_TRY(
      require(spec.top_k >= 1 && spec.top_k <= eligible, "top_k",
              up_to(eligible, spec.groups > 1 ? ", the experts of the chosen groups" : ", the experts there are"),
              std::to_string(spec.top_k)));
  if (spec.weighs_inputs) MORACLE_TRY(require(spec.top_k == 1, "top_k", "1", std::to_string(spec.top_k)));
  MORACLE_TRY(require(spec.zero_experts >= 0 && (spec.zero_experts == 0 || spec.groups == 1), "zero_experts",
                      "0 or more, in one group", std::to_string(spec.zero_experts)));
  return require(std::isfinite(spec.factor) && spec.factor > 0.0F, "factor", "a finite number above 0",
                 std::to_string(spec.factor));
}

RouteArgs route_args(const RoutingSpec& spec) {
  const Method method = method_of(spec.method);
  const bool renormalize =
      method.renorm == Renorm::always || (method.renorm == Renorm::as_configured && spec.renormalize);
  RouteArgs args{};
  args.shape = {.experts = narrow<std::int32_t>(spec.rows()),
                .top_k = narrow<std::int32_t>(spec.top_k),
                .score = method.score,
                .groups_by = method.group,
                .weight = method.weight,
                .renormalize = renormalize ? 1 : 0,
                .factor = spec.factor,
                .groups = narrow<std::int32_t>(spec.groups),
                .top_groups = narrow<std::int32_t>(spec.top_groups),
                .biased_softmax = spec.method == Routing::softmax_bias_renorm ? 1 : 0,
                .scaled_experts = spec.scaled_experts ? 1 : 0,
                .sum_floor = spec.sum_floor,
                .jitter = spec.jitter,
                .zero_experts = narrow<std::int32_t>(spec.zero_experts)};
  return args;
}

}  // namespace moracle
