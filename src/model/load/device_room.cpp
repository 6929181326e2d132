#include "model/load/device_room.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/generic/quantity.h"
#include "base/guarded.h"
#include "model/load/plan.h"

namespace moracle {

namespace {

// What sequences are to have of a GPU, of which a load gives them nine tenths.
std::uint64_t state_room(const MemoryOnDevice& device, const RoomForStates& states) {
  if (states.kv_memory > 0) return states.kv_memory;
  const std::uint64_t all = device.state * static_cast<std::uint64_t>(std::max<std::int64_t>(states.sequences, 1));
  return std::max(device.state, std::min(device.free / 8, all)) / 9 * 10;
}

}  // namespace

std::string room_text(const MemoryOnDevice& device) {
  const char* const what = device.main ? "weights" : "experts";
  if (device.call_tokens > 0) return fmt::format("all {}, and calls of up to {} tokens", what, device.call_tokens);
  return fmt::format("the {} of {} of {} layers", what, device.layers_held, device.layers);
}

Result<MemoryOnDevice> check_device_room(const LoadPlan& plan, const MemoryPlanOptions& options) {
  const std::shared_ptr<GpuDevice> gpu = plan.opened().placement().gpu();
  if (gpu == nullptr) return MemoryOnDevice{};
  const Machine& host = plan.opened().placement().host();
  MORACLE_ASSIGN(const MemoryPlan memory, memory_plan(plan, options));
  const MemoryOnDevice& device = memory.on_device;
  if (device.call_tokens > 0 || device.layers == 0) return device;
  const std::string name = gpu->name();
  const std::string state = device.main ? fmt::format("KV cache {}, ", human_bytes(device.state)) : "";
  return Error{
      .code = "device.memory",
      .where = name,
      .wanted = fmt::format("{} for the {} of {} layers and a call of one token", human_bytes(device.least),
                            device.main ? "weights" : "experts", device.layers),
      .found = fmt::format("{} free of {}", human_bytes(device.free), human_bytes(gpu->machine().memory_bytes)),
      .advice = "end other programs on this GPU, choose a model of fewer or narrower weights, or use --device cpu",
      .details = {
          fmt::format("{}: weights {}, KV cache {} (one sequence of {} positions), workspace {}, in all {} of {}",
                      host.name, human_bytes(memory.weights() - device.weights),
                      human_bytes(memory.state - device.state), memory.context, human_bytes(memory.workspace),
                      human_bytes(memory.on_host()), human_bytes(host.memory_bytes)),
          fmt::format("{}: weights {}, {}workspace {} (calls of up to {} tokens), in all {} of {} free", name,
                      human_bytes(device.weights), state, human_bytes(device.workspace), memory.batch_tokens,
                      human_bytes(device.total()), human_bytes(device.free)),
          fmt::format("{} has room for {}", name, room_text(device))}};
}

Result<std::unique_ptr<LoadPlan>> plan_for_room(const std::shared_ptr<const Checkpoint>& checkpoint, const Place& place,
                                                const Policy& policy, const RoomForStates& states,
                                                MemoryPlanOptions call) {
  MORACLE_ASSIGN(std::unique_ptr<LoadPlan> plan, LoadPlan::make(checkpoint, place, policy, GpuModules::all));
  if (place.device == nullptr) return plan;
  const std::int64_t longest = plan->info().max_context;
  call.context = std::min(std::max(call.context, kUsualContext), longest);  // a load wants room for the usual one
  call.batch_tokens = plan->prefill_chunk();
  auto counted = guarded("plan the memory", [&] { return memory_plan(*plan, call); });
  MORACLE_ASSIGN(const MemoryPlan memory, unless_changed(*checkpoint, std::move(counted)));
  const MemoryOnDevice& device = memory.on_device;
  if (device.fits()) return plan;
  std::vector<std::uint64_t> experts;  // by layer that has any
  std::uint64_t held = device.total() - device.state + state_room(device, states);
  for (const LayerMemory& layer : memory.layers) {
    if (layer.experts.card == nullptr || layer.experts.card->device == DeviceKind::cpu) continue;
    experts.push_back(layer.experts.bytes);
  }
  std::uint64_t least = device.least;  // of short calls, with one sequence
  while (held > device.free && !experts.empty()) {
    held -= std::min(held, experts.back());
    least -= std::min(least, experts.back());
    experts.pop_back();
  }
  if (std::min(held, least) > device.free) return plan;
  return LoadPlan::make(checkpoint, place, policy, GpuModules::all, std::ssize(experts));
}

Error with_room(Error error, const MemoryOnDevice& device) {
  if (error.code != "device.memory" || device.free == 0) return error;
  error.found += fmt::format(", though {} were when the load began, and the plan takes {}", human_bytes(device.free),
                             human_bytes(device.total()));
  error.advice = "another program has taken memory since: end it and load again, or use --device cpu";
  return error;
}

}  // namespace moracle
