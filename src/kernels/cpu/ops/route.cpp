// Choosing experts from router logits: every method of the field as one function, driven by its arguments. All
// arithmetic is f32.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/checked.h"
#include "base/memory.h"
#include "kernels/cpu/ops/cpu_ops.h"

namespace moracle::cpu {

namespace {

// Tokens of one task.
constexpr std::int64_t kRoutedTokens = 64;

std::int64_t scratch_floats(const RouteArgs& args) {
  return 2 * (std::int64_t{args.shape.experts} + args.shape.groups);
}

float sqrt_softplus(float x) {
  return std::sqrt(softplus(x));
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

void score_all(RouteScore score, std::span<const float> logits, std::span<float> out) {
  switch (score) {
    case RouteScore::softmax:
      softmax(logits, out);
      return;
    case RouteScore::logit:
      std::copy(logits.begin(), logits.end(), out.begin());
      return;
    case RouteScore::sigmoid:
      std::transform(logits.begin(), logits.end(), out.begin(), sigmoid);
      return;
    case RouteScore::sqrt_softplus:
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

float group_score(RouteGroups kind, std::span<const float> members) {
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
  return kind == RouteGroups::best || members.size() < 2 ? first : first + second;
}

// Puts experts outside the best groups out of the running.
void keep_best_groups(const RouteArgs& args, std::span<float> choice, std::span<float> scratch) {
  const auto groups = static_cast<std::size_t>(args.shape.groups);
  const std::size_t width = choice.size() / groups;
  const std::span<float> scores = scratch.first(groups);
  for (std::size_t g = 0; g < groups; ++g)
    scores[g] = group_score(args.shape.groups_by, choice.subspan(g * width, width));
  const std::span<float> kept = scratch.subspan(groups, groups);
  std::fill(kept.begin(), kept.end(), 0.0F);
  for (std::int64_t n = 0; n < args.shape.top_groups; ++n) {
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

// The weight of each of the largest logits, best first: its share of the softmax over those that are near it and not
// before it. A logit is far from the largest where their distance exceeds 2 jitter times the larger of that and its
// size.
void mix_sparsely(float jitter, std::span<const float> logits, std::span<const std::int32_t> ids,
                  std::span<float> weights) {
  for (std::size_t place = 0; place < taken_places(ids); ++place) {
    const float top = logits[static_cast<std::size_t>(ids[place])];
    const auto before = ids.first(place);
    float sum = 0.0F;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const float size = std::max(std::fabs(logits[i]), top);
      if (std::find(before.begin(), before.end(), static_cast<std::int32_t>(i)) != before.end()) continue;
      if ((top - logits[i]) / size > 2.0F * jitter) continue;
      sum += std::exp(logits[i] - top);
    }
    weights[place] = 1.0F / sum;
  }
}

void weigh(const RouteArgs& args, std::span<const float> logits, std::span<const float> scores,
           std::span<const std::int32_t> ids, std::span<float> weights) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<std::size_t>(ids[i]);
    weights[i] = ids[i] < 0                                           ? 0.0F
                 : args.shape.weight == RouteWeight::sigmoid_of_logit ? sigmoid(logits[id])
                                                                      : scores[id];
  }
  if (args.shape.weight == RouteWeight::sparse_mixer) mix_sparsely(args.shape.jitter, logits, ids, weights);
  if (args.shape.weight == RouteWeight::softmax_of_chosen) {
    const std::span<float> taken = weights.first(taken_places(ids));
    if (!taken.empty()) softmax(taken, taken);
  }
  if (args.shape.renormalize != 0) {
    float sum = args.shape.sum_floor;
    for (const float weight : weights) sum += weight;
    // All scores may underflow to zero; such a token gets no expert output rather than 0/0.
    if (!(sum > 0.0F)) sum = 1.0F;
    for (float& weight : weights) weight /= sum;
  }
  if (args.shape.factor != 1.0F) {
    for (float& weight : weights) weight *= args.shape.factor;
  }
  if (args.shape.scaled_experts == 0) return;
  for (std::size_t i = 0; i < taken_places(ids); ++i) weights[i] *= args.expert_scale[ids[i]];
}

// Takes zero experts out of the places that a token gives, and returns what they weigh.
float take_zero_experts(const RoutingShape& shape, std::span<std::int32_t> ids, std::span<float> weights) {
  float passed = 0.0F;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < shape.experts - shape.zero_experts) continue;
    passed += weights[i];
    ids[i] = -1;
    weights[i] = 0.0F;
  }
  return passed;
}

bool stands_for_none(const RouteArgs& args, std::int64_t token) {
  return args.token_ids != nullptr && args.token_ids[token] < 0;
}

// As RouteArgs says of one token, but for counts. `scratch`: scratch_floats(). False: its logits are not finite.
bool route_token(const RouteArgs& args, std::int64_t token, std::span<float> scratch) {
  const auto experts = static_cast<std::size_t>(args.shape.experts);
  const auto top_k = static_cast<std::size_t>(args.shape.top_k);
  const std::span<const float> logits(args.logits + token * args.shape.experts, experts);
  const std::span<std::int32_t> ids(args.ids + token * args.shape.top_k, top_k);
  const std::span<float> weights(args.weights + token * args.shape.top_k, top_k);
  const bool none = stands_for_none(args, token);
  if (none || !std::all_of(logits.begin(), logits.end(), [](float logit) { return std::isfinite(logit); })) {
    std::fill(ids.begin(), ids.end(), -1);
    std::fill(weights.begin(), weights.end(), 0.0F);
    if (args.shape.zero_experts > 0) args.passed[token] = 0.0F;
    return none;
  }
  const std::span<float> scores = scratch.first(experts);
  score_all(args.shape.score, logits, scores);
  const bool grouped = args.shape.groups_by != RouteGroups::none && args.shape.groups > 1;
  if (args.fixed_ids != nullptr) {
    const std::int32_t* const fixed = args.fixed_ids + std::int64_t{args.token_ids[token]} * args.shape.top_k;
    std::transform(fixed, fixed + top_k, ids.begin(),
                   [&](std::int32_t id) { return id >= 0 && id < args.shape.experts ? id : -1; });
  } else if (args.bias == nullptr && !grouped) {
    top_indices(scores, ids);
  } else {
    const std::span<float> choice = scratch.subspan(experts, experts);
    for (std::size_t i = 0; i < experts; ++i) choice[i] = scores[i] + (args.bias == nullptr ? 0.0F : args.bias[i]);
    if (grouped) keep_best_groups(args, choice, scratch.subspan(2 * experts));
    top_indices(choice, ids);
  }
  weigh(args, logits, scores, ids, weights);
  if (args.shape.zero_experts > 0) args.passed[token] = take_zero_experts(args.shape, ids, weights);
  return true;
}

void count_choices(const RouteArgs& args) {
  for (std::int64_t t = 0; t < args.tokens; ++t) {
    if (args.count_rows[t] < 0) continue;
    std::uint32_t* const counts = args.counts + args.count_rows[t] * args.count_stride;
    const std::int32_t* const end = args.ids + (t + 1) * args.shape.top_k;
    for (const std::int32_t* id = end - args.shape.top_k; id != end; ++id) {
      if (*id >= 0) ++counts[*id];
    }
  }
}

}  // namespace

std::size_t CpuOps::workspace(const RouteArgs& args, int threads) const {
  return BumpArena::cost<float>(static_cast<std::size_t>(scratch_floats(args) * threads)) + BumpArena::kAlignment;
}

void CpuOps::route(const RunContext& context, const RouteArgs& args) const {
  if (args.norm.x != nullptr) add_norm(context, args.norm);
  if (args.x != nullptr) compute_logits(context.pool(), args);
  BumpArena arena(context.workspace);
  const auto size = static_cast<std::size_t>(scratch_floats(args));
  const auto scratch = arena.take<float>(size * static_cast<std::size_t>(context.pool().threads()));
  context.pool().parallel_for(ceil_div(std::int64_t{args.tokens}, kRoutedTokens), [&](std::int64_t tile, int thread) {
    const std::int64_t end = std::min((tile + 1) * kRoutedTokens, std::int64_t{args.tokens});
    for (std::int64_t t = tile * kRoutedTokens; t < end; ++t) {
      if (route_token(args, t, scratch.subspan(static_cast<std::size_t>(thread) * size, size))) continue;
      if (args.bad_layer != nullptr) args.bad_layer[t] = std::min(args.bad_layer[t], args.layer);
    }
  });
  if (args.counts != nullptr) count_choices(args);
}

}  // namespace moracle::cpu
