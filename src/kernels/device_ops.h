// The kernels of a GPU, and its operations.
#pragma once

#include <memory>

#include "kernels/kernel_api.h"
#include "kernels/ops.h"

namespace moracle {

// Of the object that the device was opened from. Errors: "device.library", "device.version".
Result<const KernelApi*> kernel_api(const Device& device);

// Each a launch of its kernels; one that the device object lacks, or arguments that its kernels do not serve, fail the
// stream with "device.operation". Pages are of bf16, whatever is asked for: attention refuses others. The device
// outlives them. Errors: those of kernel_api.
Result<std::unique_ptr<Ops>> device_ops(const Device& device);

}  // namespace moracle
