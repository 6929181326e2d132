#include "moe/routing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

namespace moracle {

namespace {

enum class Score : std::uint8_t { softmax, logit, sigmoid, sqrt_softplus };
enum class GroupScore : std::uint8_t { none, best_two, best };
enum class Weight : std::uint8_t { score, softmax_of_chosen, sigmoid_of_logit };
enum class Renorm : std::uint8_t { never, always, as_configured };

// One row per method: what is ranked, and what the chosen experts weigh.
struct Method {
  Score score;
  GroupScore group;
  Weight weight;
  Renorm renorm;
};

Method method_of(Routing routing) {
  switch (routing) {
    case Routing::softmax_topk:
      return {Score::softmax, GroupScore::none, Weight::score, Renorm::never};
    case Routing::softmax_topk_renorm:
      return {Score::softmax, GroupScore::none, Weight::score, Renorm::always};
    case Routing::topk_softmax:
      return {Score::logit, GroupScore::none, Weight::softmax_of_chosen, Renorm::never};
    case Routing::sigmoid:
      return {Score::sigmoid, GroupScore::none, Weight::score, Renorm::never};
    case Routing::sigmoid_renorm:
      return {Score::sigmoid, GroupScore::none, Weight::score, Renorm::always};
    case Routing::sigmoid_bias_renorm:
      return {Score::sigmoid, GroupScore::none, Weight::score, Renorm::as_configured};
    case Routing::grouped_sigmoid_bias:
      return {Score::sigmoid, GroupScore::best_two, Weight::score, Renorm::as_configured};
    case Routing::grouped_softmax:
      return {Score::softmax, GroupScore::best, Weight::score, Renorm::as_configured};
    case Routing::sqrtsoftplus_bias:
    case Routing::hash:
      return {Score::sqrt_softplus, GroupScore::none, Weight::score, Renorm::as_configured};
    case Routing::topk_sigmoid:
      return {Score::logit, GroupScore::none, Weight::sigmoid_of_logit, Renorm::never};
    case Routing::unspecified:
      break;
  }
  return {Score::softmax, GroupScore::none, Weight::score, Renorm::always};
}

float sigmoid(float x) {
  return 1.0F / (1.0F + std::exp(-x));
}

float sqrt_softplus(float x) {
  return std::sqrt(x > 20.0F ? x : std::log1p(std::exp(x)));
}

void softmax(std::span<const float> in, std::span<float> out) {
  const float top = *std::max_element(in.begin(), in.end());
  float sum = 0.0F;
  for (std::size_t i = 0; i < in.size(); ++i) {
    out[i] = std::exp(in[i] - top);
    sum += out[i];
  }
  for (float& value : out) value /= sum;
}

void score_all(Score score, std::span<const float> logits, std::span<float> out) {
  switch (score) {
    case Score::softmax:
      softmax(logits, out);
      return;
    case Score::logit:
      std::copy(logits.begin(), logits.end(), out.begin());
      return;
    case Score::sigmoid:
      std::transform(logits.begin(), logits.end(), out.begin(), sigmoid);
      return;
    case Score::sqrt_softplus:
      std::transform(logits.begin(), logits.end(), out.begin(), sqrt_softplus);
      return;
  }
}

// Indices of the largest values, best first, the lower index first among equals; -1 beyond the last value.
void top_indices(std::span<const float> values, std::span<std::int32_t> best) {
  std::size_t held = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = values[i];
    if (held == best.size() && !(value > values[static_cast<std::size_t>(best[held - 1])])) continue;
    std::size_t at = held < best.size() ? held++ : held - 1;
    for (; at > 0 && value > values[static_cast<std::size_t>(best[at - 1])]; --at) best[at] = best[at - 1];
    best[at] = static_cast<std::int32_t>(i);
  }
  std::fill(best.begin() + static_cast<std::ptrdiff_t>(held), best.end(), -1);
}

float group_score(GroupScore kind, std::span<const float> members) {
  float first = -std::numeric_limits<float>::infinity();
  float second = first;
  for (const float value : members) {
    if (value > first) {
      second = first;
      first = value;
    } else {
      second = std::max(second, value);
    }
  }
  return kind == GroupScore::best || members.size() < 2 ? first : first + second;
}

// Puts experts outside the best groups out of the running.
void keep_best_groups(const RoutingSpec& spec, GroupScore kind, std::span<float> choice, std::span<float> scratch) {
  const auto groups = static_cast<std::size_t>(spec.groups);
  const std::size_t width = choice.size() / groups;
  const std::span<float> scores = scratch.first(groups);
  for (std::size_t g = 0; g < groups; ++g) scores[g] = group_score(kind, choice.subspan(g * width, width));
  const std::span<float> kept = scratch.subspan(groups, groups);
  std::fill(kept.begin(), kept.end(), 0.0F);
  for (std::int64_t n = 0; n < spec.top_groups; ++n) {
    std::size_t best = groups;
    for (std::size_t g = 0; g < groups; ++g) {
      if (kept[g] == 0.0F && (best == groups || scores[g] > scores[best])) best = g;
    }
    if (best < groups) kept[best] = 1.0F;
  }
  for (std::size_t g = 0; g < groups; ++g) {
    if (kept[g] != 0.0F) continue;
    const auto members = choice.subspan(g * width, width);
    std::fill(members.begin(), members.end(), -std::numeric_limits<float>::infinity());
  }
}

// The first places that an expert takes.
std::size_t taken_places(std::span<const std::int32_t> ids) {
  return static_cast<std::size_t>(std::find(ids.begin(), ids.end(), -1) - ids.begin());
}

void weigh(const Method& method, const RoutingSpec& spec, std::span<const float> logits, std::span<const float> scores,
           std::span<const std::int32_t> ids, std::span<float> weights) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<std::size_t>(ids[i]);
    weights[i] = ids[i] < 0 ? 0.0F : method.weight == Weight::sigmoid_of_logit ? sigmoid(logits[id]) : scores[id];
  }
  if (method.weight == Weight::softmax_of_chosen) {
    const std::span<float> taken = weights.first(taken_places(ids));
    if (!taken.empty()) softmax(taken, taken);
  }
  if (method.renorm == Renorm::always || (method.renorm == Renorm::as_configured && spec.renormalize)) {
    float sum = 0.0F;
    for (const float weight : weights) sum += weight;
    // All scores may underflow to zero; such a token gets no expert output rather than 0/0.
    if (!(sum > 0.0F)) sum = 1.0F;
    for (float& weight : weights) weight /= sum;
  }
  if (spec.factor != 1.0F) {
    for (float& weight : weights) weight *= spec.factor;
  }
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
  return require(std::isfinite(spec.factor) && spec.factor > 0.0F, "factor", "a finite number above 0",
                 std::to_string(spec.factor));
}

std::int64_t routing_scratch(const RoutingSpec& spec) {
  return 2 * spec.experts + 2 * spec.groups;
}

bool route(const RoutingSpec& spec, const RoutingRow& row, std::span<float> scratch, std::span<std::int32_t> ids,
           std::span<float> weights) {
  const std::size_t experts = row.logits.size();
  if (!std::all_of(row.logits.begin(), row.logits.end(), [](float logit) { return std::isfinite(logit); })) {
    std::fill(ids.begin(), ids.end(), -1);
    std::fill(weights.begin(), weights.end(), 0.0F);
    return false;
  }
  const Method method = method_of(spec.method);
  const std::span<float> scores = scratch.first(experts);
  score_all(method.score, row.logits, scores);
  if (spec.method == Routing::hash) {
    std::transform(row.chosen.begin(), row.chosen.end(), ids.begin(),
                   [&](std::int32_t id) { return id >= 0 && static_cast<std::size_t>(id) < experts ? id : -1; });
  } else if (row.bias.empty() && (method.group == GroupScore::none || spec.groups == 1)) {
    top_indices(scores, ids);
  } else {
    const std::span<float> choice = scratch.subspan(experts, experts);
    for (std::size_t i = 0; i < experts; ++i) choice[i] = scores[i] + (row.bias.empty() ? 0.0F : row.bias[i]);
    if (method.group != GroupScore::none && spec.groups > 1) {
      keep_best_groups(spec, method.group, choice, scratch.subspan(2 * experts));
    }
    top_indices(choice, ids);
  }
  weigh(method, spec, row.logits, scores, ids, weights);
  return true;
}

}  // namespace moracle
