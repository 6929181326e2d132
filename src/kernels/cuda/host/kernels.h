// Entry points of the CUDA kernels: packs in device memory, runs that enqueue on a stream of that device.
#pragma once

#include <memory>

#include "kernels/kernel.h"

namespace moracle::cuda {

// Errors: "device.none" without a device in the options, "quant.unsupported", "quant.group", "shape", those of reading
// weights and of Device::allocate. On an error nothing stays allocated.
Result<std::unique_ptr<PackedExperts>> pack_experts(const CanonicalExperts& experts, const PackOptions& options);
// In records, for the kernels that stream weights. Errors: those of pack_experts; "shape" for sizes of no instance.
Result<std::unique_ptr<PackedExperts>> pack_streamed_experts(const CanonicalExperts& experts,
                                                             const PackOptions& options);
Result<std::unique_ptr<PackedLinear>> pack_linear(const CanonicalLinear& linear, const PackOptions& options);

// Why this process cannot run CUDA kernels; empty: it can.
[[nodiscard]] std::string_view missing_device();

}  // namespace moracle::cuda
