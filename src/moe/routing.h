// What a model says of the choice of experts.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "kernels/args/route.h"
#include "scheme/routing.h"

namespace moracle {

// What the model says about its router, beside the weights.
struct RoutingSpec {
  Routing method = Routing::softmax_topk_renorm;
  std::int64_t experts = 0;
  std::int64_t top_k = 0;
  // Weights are divided by their sum. Only read for methods whose name leaves it open: sigmoid_bias_renorm and the
  // grouped, sqrtsoftplus and hash ones.
  bool renormalize = true;
  float sum_floor = 0.0F;       // added to that sum
  float factor = 1.0F;          // routed_scaling_factor, folded into the weights
  std::int64_t groups = 1;      // grouped methods: experts are split into this many runs,
  std::int64_t top_groups = 1;  // of which the best this many stay in the running
  float jitter = 0.01F;         // sparse_mixer alone
  bool scaled_experts = false;  // weights are multiplied by a number of the expert
  bool weighs_inputs = false;   // the weight of the one expert is of what it reads, in place of what it gives
  // Behind the experts in the router's rows: they have no weights, and give what they read.
  std::int64_t zero_experts = 0;

  // Of the router.
  [[nodiscard]] std::int64_t rows() const { return experts + zero_experts; }

  bool operator==(const RoutingSpec&) const = default;
};

// What every use of a spec relies on: 1 <= top_k <= experts of the groups that stay, groups that divide the experts, a
// positive factor. Errors: "config.range" with the member's name in `where`.
[[nodiscard]] Result<> validate(const RoutingSpec& spec);

// The spec as arguments of Ops::route. Pointers and the number of tokens are left to be set; `fixed_ids` are those
// of a hash layer, `bias` is added for the choice alone.
[[nodiscard]] RouteArgs route_args(const RoutingSpec& spec);

}  // namespace moracle
