// Whether a device has room for what a model puts there: asked before the first weight is read.
#pragma once

#include <string>

#include "model/load/memory_plan.h"

namespace moracle {

// What there is room for where a plan does not fit: "the experts of 9 of 48 layers", or "all experts, and calls of up
// to 40 tokens".
[[nodiscard]] std::string room_text(const MemoryOnDevice& device);

// What a load may count on there; without a device nothing. Errors: "device.memory" where the weights and the workspace
// of a call of one token are more than is free, its details the plan's memory by place and what there is room for;
// those of memory_plan.
Result<MemoryOnDevice> check_device_room(const LoadPlan& plan, const MemoryPlanOptions& options);

// What a load is to have room for on a GPU, beside the weights and the workspace of calls of `call.batch_tokens`.
struct RoomForStates {
  // Bytes; 0: sequences of `call.context` in up to an eighth of what is free, but one at least.
  std::size_t kv_memory = 0;
  std::int64_t sequences = 1;
};

// The plan of a model that is to run. Where the GPU of the place lacks room for all of it, the host has the routed
// experts of the last layers, of as few as it takes; where that does not suffice the plan is one of the whole model.
// `call` is brought to the usual context at least, and to the chunk of the GPU.
// Errors: those of LoadPlan::make and memory_plan.
Result<std::unique_ptr<LoadPlan>> plan_for_room(const std::shared_ptr<const Checkpoint>& checkpoint, const Place& place,
                                                const Policy& policy, const RoomForStates& states,
                                                MemoryPlanOptions call);

// Of a load for which there was room: the error of an allocation that failed all the same says so. Others are as they
// are.
[[nodiscard]] Error with_room(Error error, const MemoryOnDevice& device);

}  // namespace moracle
