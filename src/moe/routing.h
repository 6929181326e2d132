// Choosing experts from router logits: every method of the field as one table-driven function.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "oracle/problem.h"

namespace moracle {

// What the model says about its router, beside the weights.
struct RoutingSpec {
  Routing method = Routing::softmax_topk_renorm;
  std::int64_t experts = 0;
  std::int64_t top_k = 0;
  // Weights are divided by their sum. Only read for methods whose name leaves it open: sigmoid_bias_renorm and the
  // grouped, sqrtsoftplus and hash ones.
  bool renormalize = true;
  float factor = 1.0F;          // routed_scaling_factor, folded into the weights
  std::int64_t groups = 1;      // grouped methods: experts are split into this many runs,
  std::int64_t top_groups = 1;  // of which the best this many stay in the running

  bool operator==(const RoutingSpec&) const = default;
};

// What every use of a spec relies on: 1 <= top_k <= experts of the groups that stay, groups that divide the experts, a
// positive factor. Errors: "config.range" with the member's name in `where`.
[[nodiscard]] Result<> validate(const RoutingSpec& spec);

// Scratch that route() needs, in floats.
[[nodiscard]] std::int64_t routing_scratch(const RoutingSpec& spec);

// Inputs of one token. `bias` only chooses (correction bias); empty where the model has none. `chosen` are the ids that
// a hash layer prescribes.
struct RoutingRow {
  std::span<const float> logits;  // [experts]
  std::span<const float> bias{};
  std::span<const std::int32_t> chosen{};
};

// Writes top_k ids and weights, best first; equal scores go to the lower index. All arithmetic is f32. A place that no
// expert takes has an id of -1 and a weight of 0: those beyond the experts there are, and prescribed ids that are none.
// A row with a logit that is not finite has nothing else, and false is returned.
bool route(const RoutingSpec& spec, const RoutingRow& row, std::span<float> scratch, std::span<std::int32_t> ids,
           std::span<float> weights);

}  // namespace moracle
