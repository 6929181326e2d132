#include "moe/moe_layer.h"

#include <algorithm>

#include "base/checked.h"
#include "base/memory.h"

namespace moracle {

namespace {

// A task is a few router rows against a run of tokens: the rows stay in the first-level cache over the run, and a
// single token still spreads over all cores.
constexpr std::int64_t kExpertTile = 8;
constexpr std::int64_t kTokenTile = 64;

std::size_t count(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

}  // namespace

std::size_t MoeLayer::bytes() const {
  return parts_.experts->bytes() + sizeof(float) * (parts_.router.size() + parts_.router_bias.size() +
                                                    parts_.correction_bias.size() + parts_.chosen.size());
}

std::size_t MoeLayer::workspace_bytes(std::int64_t tokens, int threads) const {
  const RoutingSpec& routing = parts_.routing;
  return BumpArena::cost<float>(count(tokens * routing.experts)) +
         BumpArena::cost<float>(count(routing_scratch(routing) * threads)) +
         BumpArena::cost<std::int32_t>(count(tokens * routing.top_k)) +
         BumpArena::cost<float>(count(tokens * routing.top_k)) + BumpArena::kAlignment +
         parts_.experts->workspace_bytes(tokens, routing.top_k, threads);
}

void MoeLayer::router_logits(ThreadPool& pool, std::int64_t tokens, const float* x, float* logits) const {
  const std::int64_t experts = parts_.routing.experts;
  const std::int64_t expert_tiles = ceil_div(experts, kExpertTile);
  pool.parallel_for(ceil_div(tokens, kTokenTile) * expert_tiles, [&](std::int64_t task, int) {
    const std::int64_t first = task % expert_tiles * kExpertTile;
    const std::int64_t begin = task / expert_tiles * kTokenTile;
    const std::int64_t end = std::min(begin + kTokenTile, tokens);
    const std::int64_t width = std::min(kExpertTile, experts - first);
    float* const to = logits + begin * experts + first;
    parts_.ops->dot_rows(end - begin, width, parts_.hidden, x + begin * parts_.hidden, parts_.hidden,
                         parts_.router.data() + first * parts_.hidden, parts_.hidden, to, experts);
    if (parts_.router_bias.empty()) return;
    for (std::int64_t t = 0; t < end - begin; ++t) {
      for (std::int64_t e = 0; e < width; ++e) to[t * experts + e] += parts_.router_bias[count(first + e)];
    }
  });
}

void MoeLayer::run(const RunContext& context, std::int64_t tokens, const float* x, const std::int32_t* token_ids,
                   float* out, PhaseClock* clock, RoutingTally* tally) const {
  const RoutingSpec& routing = parts_.routing;
  const std::int64_t top_k = routing.top_k;
  BumpArena arena(context.workspace);
  const auto logits = arena.take<float>(count(tokens * routing.experts));
  const std::int64_t scratch_size = routing_scratch(routing);
  const auto scratch = arena.take<float>(count(scratch_size * context.pool().threads()));
  const auto ids = arena.take<std::int32_t>(count(tokens * top_k));
  const auto weights = arena.take<float>(count(tokens * top_k));
  const std::span<std::byte> rest =
      arena.take<std::byte>(parts_.experts->workspace_bytes(tokens, top_k, context.pool().threads()));

  if (clock != nullptr) clock->enter(Phase::routing);
  router_logits(context.pool(), tokens, x, logits.data());
  context.pool().parallel_for(ceil_div(tokens, kTokenTile), [&](std::int64_t tile, int thread) {
    for (std::int64_t t = tile * kTokenTile; t < std::min((tile + 1) * kTokenTile, tokens); ++t) {
      RoutingRow row{.logits = logits.subspan(count(t * routing.experts), count(routing.experts)),
                     .bias = parts_.correction_bias};
      if (!parts_.chosen.empty())
        row.chosen = std::span(parts_.chosen).subspan(count(token_ids[t] * top_k), count(top_k));
      const bool finite =
          route(routing, row, scratch.subspan(count(thread * scratch_size), count(scratch_size)),
                ids.subspan(count(t * top_k), count(top_k)), weights.subspan(count(t * top_k), count(top_k)));
      if (finite || context.status == nullptr) continue;
      std::int32_t& bad = context.status->bad_layer[t];
      bad = std::min(bad, parts_.layer);
    }
  });
  if (tally != nullptr) tally->count(top_k, ids);
  const ExpertsInput input{.tokens = tokens, .top_k = top_k, .x = x, .ids = ids.data(), .weights = weights.data()};
  if (clock != nullptr) clock->enter(Phase::experts);
  parts_.experts->run(RunContext{context.stream, rest}, input, out);
}

}  // namespace moracle
