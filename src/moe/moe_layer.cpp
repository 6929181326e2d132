#include "moe/moe_layer.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/generic/count.h"
#include "base/memory.h"

namespace moracle {

std::size_t MoeLayer::bytes() const {
  return parts_.experts.bytes() + parts_.router.bytes() + parts_.router_bias.bytes() + parts_.correction_bias.bytes() +
         parts_.expert_scale.bytes() + parts_.fixed_ids.bytes();
}

struct MoeLayer::Buffers {
  std::span<float> logits;      // [tokens, experts]
  std::span<std::int32_t> ids;  // [tokens, top_k]
  std::span<float> weights;     // [tokens, top_k]
  std::span<float> weighed;     // [tokens, hidden] where weights are of inputs
  std::span<std::byte> rest;    // of one operation after the other
};

MoeLayer::Buffers MoeLayer::lay_out(BumpArena& arena, std::int64_t tokens, int threads) const {
  const RoutingSpec& routing = parts_.routing;
  const std::size_t pairs = count(tokens * routing.top_k);
  Buffers buffers;
  buffers.logits = arena.take<float>(count(tokens * routing.experts));
  buffers.ids = arena.take<std::int32_t>(pairs);
  buffers.weights = arena.take<float>(pairs);
  if (routing.weighs_inputs) buffers.weighed = arena.take<float>(count(tokens * parts_.hidden));
  buffers.rest = arena.take<std::byte>(std::max(parts_.ops->workspace(route_args(routing), threads),
                                                parts_.experts.workspace_bytes(tokens, routing.top_k, threads)));
  return buffers;
}

std::size_t MoeLayer::workspace_bytes(std::int64_t tokens, int threads) const {
  BumpArena counting = BumpArena::counting();
  static_cast<void>(lay_out(counting, tokens, threads));
  return counting.used() + BumpArena::kAlignment;
}

void MoeLayer::begin(const RunContext& context, std::int64_t tokens, NormedInput input, const std::int32_t* token_ids,
                     float* out, PhaseClock* clock, const ExpertCounts* counts) const {
  const std::int64_t top_k = parts_.routing.top_k;
  BumpArena arena(context.workspace);
  const Buffers buffers = lay_out(arena, tokens, context.threads());
  const RunContext rest{context.stream, buffers.rest, context.status};

  if (clock != nullptr) {
    clock->enter(Phase::norms);
    if (input.norm.x != nullptr) parts_.ops->add_norm(rest, std::exchange(input.norm, {}));
    clock->enter(Phase::routing);
  }
  RouteArgs route = route_args(parts_.routing);
  route.tokens = narrow<std::int32_t>(tokens);
  route.batch_invariant = parts_.batch_invariant ? 1 : 0;
  route.norm = input.norm;
  route.x = input.router != nullptr ? input.router : input.x;
  route.hidden = parts_.hidden;
  route.router = parts_.router.data;
  route.router_bias = parts_.router_bias.data;
  route.logits = buffers.logits.data();
  route.bias = parts_.correction_bias.data;
  route.expert_scale = parts_.expert_scale.data;
  route.fixed_ids = parts_.fixed_ids.data;
  route.token_ids = token_ids;
  route.ids = buffers.ids.data();
  route.weights = buffers.weights.data();
  route.layer = parts_.layer;
  route.bad_layer = context.status == nullptr ? nullptr : context.status->bad_layer;
  if (counts != nullptr) {
    route.counts = counts->counts + std::int64_t{parts_.layer} * route.shape.experts;
    route.count_rows = counts->rows;
    route.count_stride = counts->row_stride;
  }
  parts_.ops->route(rest, route);
  const float* x = input.x;
  if (parts_.routing.weighs_inputs) {
    parts_.ops->weigh(rest, {.rows = tokens,
                             .cols = parts_.hidden,
                             .x = x,
                             .weights = buffers.weights.data(),
                             .out = buffers.weighed.data()});
    x = buffers.weighed.data();
  }
  if (clock != nullptr) clock->enter(Phase::experts);
  parts_.experts.begin(
      rest, {.tokens = tokens, .top_k = top_k, .x = x, .ids = buffers.ids.data(), .weights = buffers.weights.data()},
      out);
}

}  // namespace moracle
