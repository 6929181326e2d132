// Kernels of a device, called from a stream of the host.
#pragma once

#include <memory>

#include "device/gpu_device.h"
#include "kernels/kernel.h"

namespace moracle {

// Inputs, workspace and outputs of a call pass through the device's stage; a call has ended when its output lies on the
// host. What fails on the device fails the host's stream, and the output is NaN. Errors of reserve(): "device.memory",
// "device.batch".
[[nodiscard]] std::unique_ptr<PackedExperts> offload(std::unique_ptr<PackedExperts> experts, std::int64_t hidden,
                                                     std::shared_ptr<GpuDevice> device);
[[nodiscard]] std::unique_ptr<PackedLinear> offload(std::unique_ptr<PackedLinear> linear, const MatrixSpec& matrix,
                                                    std::shared_ptr<GpuDevice> device);

// Packed to be run on a stream of the host, wherever the card computes. With layout_only, no device is needed. Errors:
// those of packing.
Result<std::unique_ptr<PackedExperts>> pack_for_host(const KernelImplementation& kernel,
                                                     const CanonicalExperts& experts, const PackOptions& options);
Result<std::unique_ptr<PackedLinear>> pack_for_host(const KernelImplementation& kernel, const CanonicalLinear& linear,
                                                    const PackOptions& options);

}  // namespace moracle
