#include "model/load/device_room.h"

#include <fmt/format.h>

#include "base/generic/quantity.h"
#include "model/load/plan.h"

namespace moracle {

std::string room_text(const MemoryOnDevice& device) {
  const char* const what = device.whole ? "weights" : "experts";
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
  const std::string state = device.whole ? fmt::format("KV cache {}, ", human_bytes(device.state)) : "";
  return Error{
      .code = "device.memory",
      .where = name,
      .wanted = fmt::format("{} for the {} of {} layers and a call of one token", human_bytes(device.least),
                            device.whole ? "weights" : "experts", device.layers),
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

Error with_room(Error error, const MemoryOnDevice& device) {
  if (error.code != "device.memory" || device.free == 0) return error;
  error.found += fmt::format(", though {} were when the load began, and the plan takes {}", human_bytes(device.free),
                             human_bytes(device.total()));
  error.advice = "another program has taken memory since: end it and load again, or use --device cpu";
  return error;
}

}  // namespace moracle
