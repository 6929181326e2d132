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

// Of a load for which there was room: the error of an allocation that failed all the same says so. Others are as they
// are.
[[nodiscard]] Error with_room(Error error, const MemoryOnDevice& device);

}  // namespace moracle
