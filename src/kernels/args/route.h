// The choice of experts.
#pragma once

#include <cstdint>

#include "kernels/args/norm.h"

namespace moracle {

enum class RouteScore : std::int32_t { softmax, logit, sigmoid, sqrt_softplus };
enum class RouteGroups : std::int32_t { none, best_two, best };
enum class RouteWeight : std::int32_t { score, softmax_of_chosen, sigmoid_of_logit, sparse_mixer };

struct RoutingShape {
  std::int32_t experts;
  std::int32_t top_k;
  RouteScore score;
  RouteGroups groups_by;
  RouteWeight weight;
  std::int32_t renormalize;
  float factor;
  std::int32_t groups;
  std::int32_t top_groups;
  std::int32_t biased_softmax = 0;  // a bias is added to probabilities
  std::int32_t scaled_experts = 0;  // weights are multiplied by RouteArgs::expert_scale
  float sum_floor = 0.0F;           // added to the sum that weights are divided by
  float jitter = 0.0F;  // sparse_mixer: logits further below the largest, relative to it, than twice this do not count
  std::int32_t zero_experts = 0;  // of `experts`, the last: they take no place, what they weigh is told by `passed`
};
static_assert(kPlain<RoutingShape>);

// ids and weights [tokens, top_k], best first, equal scores by the lower index. A place that no expert takes has an id
// of -1 and a weight of 0: those beyond the experts there are, fixed ids that are none, zero experts. A row of logits
// that is not finite has nothing else, and lowers bad_layer of its token to `layer`. A token whose id is -1 stands for
// none: it has nothing else, whatever its logits are, and no mark.
struct RouteArgs {
  std::int32_t tokens;
  std::int32_t batch_invariant;  // else logits of many tokens may be added in another order than those of few
  RoutingShape shape;
  AddNormArgs norm;  // with x: comes first, and its output is what follows
  // With x, logits[tokens, experts] = x[tokens, hidden] router[experts, hidden]^T + router_bias come first.
  const float* x;  // or null: logits are given
  std::int64_t hidden;
  const float* router;
  const float* router_bias;  // [experts] or null
  float* logits;
  const float* bias;              // [experts] or null: added for the choice alone
  const float* expert_scale;      // [experts] with shape.scaled_experts
  const std::int32_t* fixed_ids;  // [vocab, top_k] or null: of a hash layer, by token id
  const std::int32_t* token_ids;  // [tokens], -1 <= id < vocab; or null without fixed_ids: every token is one
  std::int32_t* ids;
  float* weights;
  std::int32_t layer;
  std::int32_t* bad_layer;  // [tokens] or null
  // counts[row * count_stride + id] += 1 for each id above -1 of a token whose row is not -1. Null: nobody counts.
  std::uint32_t* counts;           // of row 0, [experts]
  const std::int32_t* count_rows;  // [tokens], with counts
  std::int64_t count_stride;       // counts from row to row
  float* passed;                   // [tokens] with shape.zero_experts: the sum of weights of those that were chosen
};
static_assert(kPlain<RouteArgs>);
inline constexpr std::int32_t kMostRouted = 1024;  // experts that a block of the router holds

}  // namespace moracle
