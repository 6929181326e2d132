#include "moe/moe_layer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/checked.h"
#include "base/generic/count.h"
#include "base/memory.h"

namespace moracle {

namespace {

// Choices for each expert of a layer from which on all are expected.
constexpr std::int64_t kNearlyAll = 2;

}  // namespace

std::size_t MoeLayer::bytes() const {
  return parts_.experts.bytes() + parts_.router.bytes() + parts_.router_bias.bytes() + parts_.correction_bias.bytes() +
         parts_.expert_scale.bytes() + parts_.fixed_ids.bytes();
}

struct MoeLayer::Buffers {
  std::span<float> logits;      // [tokens, rows of the router]
  std::span<std::int32_t> ids;  // [tokens, top_k]
  std::span<float> weights;     // [tokens, top_k]
  std::span<float> weighed;     // [tokens, hidden] where weights are of inputs
  std::span<std::byte> rest;    // of one operation after the other
};

MoeLayer::Buffers MoeLayer::lay_out(BumpArena& arena, std::int64_t tokens, int threads) const {
  const RoutingSpec& routing = parts_.routing;
  const std::size_t pairs = count(tokens * routing.top_k);
  Buffers buffers;
  buffers.logits = arena.take<float>(count(tokens * routing.rows()));
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

RouteArgs MoeLayer::route_of(std::int64_t tokens, const float* x, const std::int32_t* token_ids) const {
  RouteArgs route = route_args(parts_.routing);
  route.tokens = narrow<std::int32_t>(tokens);
  route.batch_invariant = parts_.batch_invariant ? 1 : 0;
  route.x = x;
  route.hidden = parts_.hidden;
  route.router = parts_.router.data;
  route.router_bias = parts_.router_bias.data;
  route.bias = parts_.correction_bias.data;
  route.expert_scale = parts_.expert_scale.data;
  route.fixed_ids = parts_.fixed_ids.data;
  route.token_ids = token_ids;
  route.layer = parts_.layer;
  return route;
}

void MoeLayer::foresee(const RunContext& context, std::int64_t tokens, const float* x,
                       const std::int32_t* token_ids) const {
  LayerExperts& experts = *parts_.experts.read();
  const RoutingSpec& routing = parts_.routing;
  BumpArena arena(context.workspace);
  if (tokens * routing.top_k >= kNearlyAll * routing.experts) {
    const std::span<std::int32_t> all = arena.take<std::int32_t>(count(routing.experts));
    std::iota(all.begin(), all.end(), 0);
    return experts.expect(all);
  }
  const std::span<float> logits = arena.take<float>(count(tokens * routing.rows()));
  const std::span<std::int32_t> ids = arena.take<std::int32_t>(count(tokens * routing.top_k));
  const std::span<float> weights = arena.take<float>(ids.size());
  const std::span<float> passed = arena.take<float>(routing.zero_experts > 0 ? count(tokens) : 0);
  const std::size_t scratch = parts_.ops->workspace(route_args(routing), context.threads());
  const std::span<std::byte> rest = arena.take<std::byte>(scratch);
  const bool room = !logits.empty() && !weights.empty() && passed.empty() == (routing.zero_experts == 0);
  if (!room || rest.size() < scratch) return;
  RouteArgs route = route_of(tokens, x, token_ids);
  route.logits = logits.data();
  route.ids = ids.data();
  route.weights = weights.data();
  route.passed = passed.data();
  parts_.ops->route({context.stream, rest}, route);
  experts.expect(ids);
}

void MoeLayer::begin(const RunContext& context, std::int64_t tokens, NormedInput input, const std::int32_t* token_ids,
                     float* out, PhaseClock* clock, const ExpertCounts* counts, float* passed) const {
  const std::int64_t top_k = parts_.routing.top_k;
  BumpArena arena(context.workspace);
  const Buffers buffers = lay_out(arena, tokens, context.threads());
  const RunContext rest{context.stream, buffers.rest, context.status};

  if (clock != nullptr) {
    clock->enter(Phase::norms);
    if (input.norm.x != nullptr) parts_.ops->add_norm(rest, std::exchange(input.norm, {}));
    clock->enter(Phase::routing);
  }
  RouteArgs route = route_of(tokens, input.router != nullptr ? input.router : input.x, token_ids);
  route.norm = input.norm;
  route.logits = buffers.logits.data();
  route.ids = buffers.ids.data();
  route.weights = buffers.weights.data();
  route.passed = passed;
  route.bad_layer = context.status == nullptr ? nullptr : context.status->bad_layer;
  if (counts != nullptr) {
    route.counts = counts->counts + std::int64_t{parts_.layer} * parts_.routing.experts;
    route.count_rows = counts->rows;
    route.count_stride = counts->row_stride;
  }
  parts_.ops->route(rest, route);
  if (next_ != nullptr) next_->foresee(rest, tokens, route.x, token_ids);
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
