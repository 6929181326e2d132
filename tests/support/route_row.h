// Routing of one token on the host, as a layer asks for it.
#pragma once

#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/ops.h"
#include "moe/routing.h"

namespace moracle::test {

struct RoutingRow {
  std::span<const float> logits;  // [rows of the router]
  std::span<const float> bias{};
  std::span<const std::int32_t> fixed{};  // [top_k], of a hash layer
};

// False: a logit is not finite. `passed`: of a spec with zero experts.
inline bool route(const RoutingSpec& spec, const RoutingRow& row, std::span<std::int32_t> ids, std::span<float> weights,
                  float* passed = nullptr) {
  static ThreadPool pool(1);
  Stream stream(pool);
  constexpr std::int32_t kLayer = 3;
  std::int32_t bad_layer = DeviceStatus::kRouted;
  RouteArgs args = route_args(spec);
  args.tokens = 1;
  std::vector<float> logits(row.logits.begin(), row.logits.end());
  args.logits = logits.data();
  args.bias = row.bias.empty() ? nullptr : row.bias.data();
  const std::int32_t token_id = 0;
  args.fixed_ids = row.fixed.empty() ? nullptr : row.fixed.data();
  args.token_ids = &token_id;
  args.ids = ids.data();
  args.weights = weights.data();
  args.passed = passed;
  args.layer = kLayer;
  args.bad_layer = &bad_layer;
  std::vector<std::byte> workspace(ref_ops().workspace(args, 1));
  ref_ops().route({.stream = stream, .workspace = workspace}, args);
  return bad_layer != kLayer;
}

}  // namespace moracle::test
