#include "model/load/expert_room.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "base/generic/count.h"
#include "base/generic/quantity.h"
#include "model/load/plan.h"
#include "slots/extents.h"
#include "slots/read_rate.h"

namespace moracle {

namespace {

// With slots for what two layers choose for a token.
Result<PoolSize> least_pool(const LoadPlan& plan, const MemoryPlan& memory) {
  PoolSize size;
  for (const LayerMemory& layer : memory.layers) {
    if (layer.experts.card == nullptr) continue;
    if (layer.experts.slot_bytes == 0) {
      return Error{.code = "memory.kernel",
                   .where = layer.name,
                   .wanted = "a kernel that packs each expert alone, since not all of them fit",
                   .found = std::string(layer.experts.card->id),
                   .advice = "leave --backend out, or give more memory"};
    }
    size.slot_bytes = std::max<std::size_t>(size.slot_bytes, layer.experts.slot_bytes);
    size.experts += layer.experts.bytes / layer.experts.slot_bytes;
  }
  for (const ModuleReport& module : plan.modules()) {
    if (module.kind != "experts") continue;
    const std::size_t stored = module.bytes / count(std::max<std::int64_t>(plan.info().experts, 1));
    size.read_bytes = std::max(size.read_bytes, ExpertExtents::most_room(stored));
  }
  size.slot_bytes = (size.slot_bytes + BumpArena::kAlignment - 1) / BumpArena::kAlignment * BumpArena::kAlignment;
  size.slots = std::min<std::size_t>(size.experts, 2 * count(plan.info().experts_per_token));
  return size;
}

void count_choices(const LoadPlan& plan, ExpertRoom& room) {
  std::uint64_t layers = 0;
  std::uint64_t bytes = 0;
  for (const ModuleReport& module : plan.modules()) {
    if (module.kind != "experts") continue;
    ++layers;
    bytes += module.bytes;
  }
  room.chosen = layers * count(plan.info().experts_per_token);
  room.stored = bytes / std::max<std::uint64_t>(layers * count(plan.info().experts), 1);
}

void take_call(const MemoryPlan& planned, const RoomOptions& options, ExpertRoom& room) {
  room.workspace = planned.workspace;
  room.state = options.kv_memory > 0 ? options.kv_memory : planned.state;
}

// A call reads an expert once, however many tokens choose it: the longest calls whose workspace is a small part of the
// bound.
Result<> lengthen_calls(const LoadPlan& plan, const RoomOptions& options, const MemoryPlanOptions& call,
                        ExpertRoom& room) {
  constexpr std::int64_t kLongest = 4096;
  constexpr std::uint64_t kPart = 16;
  MemoryPlanOptions longer = call;
  for (longer.prefill_chunk = std::min(kLongest, call.context); longer.prefill_chunk >= 2 * call.batch_tokens;
       longer.prefill_chunk /= 2) {
    longer.batch_tokens = longer.prefill_chunk;
    MORACLE_ASSIGN(const MemoryPlan planned, memory_plan(plan, longer));
    ExpertRoom tried = room;
    take_call(planned, options, tried);
    tried.floor += tried.rest() - room.rest();
    if (tried.workspace > options.memory / kPart || tried.floor > options.memory) continue;
    room = tried;
    room.prefill_chunk = longer.prefill_chunk;
    return Ok{};
  }
  return Ok{};
}

Error below_floor(const ExpertRoom& room, std::uint64_t found, const MemoryPlan& memory) {
  const PoolSize& pool = room.pool;
  return Error{
      .code = "memory.floor",
      .where = "--memory",
      .wanted = fmt::format("at least {}", human_bytes(room.floor)),
      .found = human_bytes(found),
      .advice = "give more memory, or choose a model of fewer or narrower weights",
      .details = {
          fmt::format("weights without routed experts {}, KV cache {}, workspace {} (calls of up to {} tokens)",
                      human_bytes(room.weights), human_bytes(room.state), human_bytes(room.workspace),
                      memory.batch_tokens),
          fmt::format("{} experts of {} in slots, {} to read into: in all {}", pool.slots, human_bytes(pool.slot_bytes),
                      human_bytes(PoolSize::kReads * pool.read_bytes), human_bytes(room.floor)),
          fmt::format("all {} experts take {}", pool.experts, human_bytes(room.experts))}};
}

}  // namespace

Result<ExpertRoom> expert_room(const LoadPlan& plan, const RoomOptions& options, const MemoryPlanOptions& call) {
  if (plan.opened().placement().gpu() != nullptr) {
    return Error{.code = "memory.device",
                 .where = "--memory",
                 .wanted = "--device cpu",
                 .found = "a GPU",
                 .advice = "leave --memory out; --vram bounds the memory of a GPU"};
  }
  MORACLE_ASSIGN(const MemoryPlan planned, memory_plan(plan, call));
  ExpertRoom room;
  room.bound = options.memory;
  for (const LayerMemory& layer : planned.layers) room.experts += layer.experts.bytes;
  room.weights = planned.weights() - room.experts;
  count_choices(plan, room);
  take_call(planned, options, room);
  const Result<PoolSize> least = least_pool(plan, planned);
  room.floor = room.rest() + (least.ok() ? std::min<std::uint64_t>(least->bytes(), room.experts) : room.experts);
  const bool all_fit = room.rest() + room.experts <= options.memory;
  if (all_fit && options.expert_slots == 0) {
    if (options.kv_memory == 0) room.state = options.memory - room.weights - room.experts - room.workspace;
    return room;
  }
  MORACLE_TRY(least);
  room.pool = *least;
  if (options.expert_slots > 0) {
    room.pool.slots = std::min(options.expert_slots, room.pool.experts);
    return room;
  }
  if (options.memory < room.floor) return below_floor(room, options.memory, planned);
  MORACLE_TRY(lengthen_calls(plan, options, call, room));
  if (options.kv_memory == 0)
    room.state = std::clamp(options.memory / 8, room.state, room.state + options.memory - room.floor);
  const std::uint64_t spare = options.memory - room.rest() - room.pool.bytes();
  room.pool.slots += std::min<std::uint64_t>(room.pool.experts - room.pool.slots, spare / room.pool.slot_bytes);
  return room;
}

Result<ExpertRoom> usual_room(const LoadPlan& plan, std::uint64_t free, const RoomOptions& options,
                              const MemoryPlanOptions& call) {
  RoomOptions bound = options;
  bound.memory = free - free / 10;
  std::uint64_t stored = options.kv_memory;
  for (const ModuleReport& module : plan.modules()) stored += module.bytes;
  // What is packed is never twice as large: most loads are not counted.
  const bool fits = free == 0 || stored < bound.memory / 2;
  if (fits || plan.info().experts == 0 || plan.opened().placement().gpu() != nullptr) return ExpertRoom{};
  Result<ExpertRoom> room = expert_room(plan, bound, call);
  if (room.ok() && room->pool.slots == 0) return ExpertRoom{};
  if (!room.ok() && room.error().code == "memory.kernel") return ExpertRoom{};
  if (room.ok()) return room;
  Error error = std::move(room).error();
  if (error.code == "memory.floor") {
    error.where = "free memory";
    error.found += " of " + human_bytes(free);
    error.advice = "end other programs, or choose a model of fewer or narrower weights; --memory sets another bound";
  }
  return error;
}

std::optional<double> measure_expert_reads(const LoadPlan& plan) {
  constexpr std::chrono::milliseconds kTime(500);
  std::vector<std::size_t> modules;
  for (std::size_t module = 0; module < plan.modules().size(); ++module) {
    if (plan.modules()[module].kind == "experts") modules.push_back(module);
  }
  if (modules.empty()) return std::nullopt;
  std::vector<CanonicalExperts::Expert> experts;
  for (const std::size_t module : {modules.front(), modules[modules.size() / 2], modules.back()}) {
    auto layer = plan.read_experts(module);
    if (!layer.ok()) return std::nullopt;
    experts.insert(experts.end(), layer->experts.begin(), layer->experts.end());
  }
  return measure_read_rate(plan.opened().checkpoint(), experts, kTime);
}

}  // namespace moracle
