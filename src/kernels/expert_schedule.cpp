#include "kernels/expert_schedule.h"

#include <algorithm>

namespace moracle {

std::size_t ExpertSchedule::bytes(std::int64_t tokens, std::int64_t top_k, std::int64_t experts) {
  const auto pairs = static_cast<std::size_t>(tokens * top_k);
  const auto count = static_cast<std::size_t>(experts);
  return 2 * BumpArena::cost<std::int32_t>(pairs) + 2 * BumpArena::cost<std::int32_t>(count + 1);
}

ExpertSchedule ExpertSchedule::take(std::int64_t tokens, std::int64_t top_k, std::int64_t experts, BumpArena& arena) {
  const auto pairs = static_cast<std::size_t>(tokens * top_k);
  const auto count = static_cast<std::size_t>(experts);
  return {.pairs = arena.take<std::int32_t>(pairs),
          .offsets = arena.take<std::int32_t>(count + 1),
          .active = arena.take<std::int32_t>(count + 1),
          .inverse = arena.take<std::int32_t>(pairs)};
}

ExpertSchedule ExpertSchedule::make(const ExpertsInput& input, std::int64_t experts, BumpArena& arena) {
  const auto total = static_cast<std::size_t>(input.tokens * input.top_k);
  const auto count = static_cast<std::size_t>(experts);
  ExpertSchedule schedule = take(input.tokens, input.top_k, experts, arena);
  const auto serves = [&](std::int32_t id) { return id >= 0 && id < experts; };
  std::fill(schedule.offsets.begin(), schedule.offsets.end(), 0);
  for (std::size_t pair = 0; pair < total; ++pair) {
    if (serves(input.ids[pair])) ++schedule.offsets[static_cast<std::size_t>(input.ids[pair]) + 1];
  }
  for (std::size_t e = 0; e < count; ++e) schedule.offsets[e + 1] += schedule.offsets[e];
  // `active` is where the next pair of each expert goes first, and becomes the list of active experts afterwards.
  std::copy_n(schedule.offsets.begin(), count, schedule.active.begin());
  for (std::size_t pair = 0; pair < total; ++pair) {
    schedule.inverse[pair] = -1;
    if (!serves(input.ids[pair])) continue;
    const std::int32_t at = schedule.active[static_cast<std::size_t>(input.ids[pair])]++;
    schedule.pairs[static_cast<std::size_t>(at)] = static_cast<std::int32_t>(pair);
    schedule.inverse[pair] = at;
  }
  std::size_t actives = 0;
  for (std::size_t e = 0; e < count; ++e) {
    if (schedule.offsets[e + 1] > schedule.offsets[e]) schedule.active[actives++] = static_cast<std::int32_t>(e);
  }
  schedule.active = schedule.active.first(actives);
  schedule.pairs = schedule.pairs.first(static_cast<std::size_t>(schedule.offsets[count]));
  return schedule;
}

}  // namespace moracle
