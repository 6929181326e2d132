// A GPU that is not of this machine, as its name or a file describes it.
#pragma once

#include <cstdint>
#include <memory>

#include "device/gpu_device.h"

namespace moracle {

// Plans are made for it as for one that is there, all of its memory free; what allocates or runs fails with
// "device.call". `memory`: bytes of it to use at most, as GpuDevice::limit_memory has it. Errors: "device.capability"
// for a GPU that no kernel of this build serves.
Result<std::shared_ptr<GpuDevice>> describe_gpu(const Machine& machine, std::uint64_t memory);

// Whether the device object has machine code for a capability; for others drivers compile its PTX at the first run.
[[nodiscard]] constexpr bool has_machine_code(int capability) {
  return capability / 10 == 8 || capability == 90 || capability / 10 == 12;
}

}  // namespace moracle
