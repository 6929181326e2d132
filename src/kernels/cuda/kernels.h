// Entry points of the CUDA kernels: packs in device memory, runs on a device's stage.
#pragma once

#include <memory>

#include "device/device.h"
#include "kernels/kernel.h"

namespace moracle::cuda {

// Experts whose weights lie on a device. Inputs and outputs of run() lie on the host; enqueue() takes those of the
// device.
class DeviceExperts : public PackedExperts {
 public:
  // Of one call; all pointers are the device's.
  struct Call {
    std::int64_t tokens = 0;
    std::int64_t top_k = 0;
    const float* x = nullptr;
    const std::int32_t* ids = nullptr;
    const float* weights = nullptr;
    float* out = nullptr;
    std::span<std::byte> scratch{};  // of scratch_bytes()
  };
  // Enqueues the whole pass: never blocks, never allocates, may be captured.
  virtual void enqueue(Stream& stream, const Call& call) const = 0;
  [[nodiscard]] virtual std::size_t scratch_bytes(std::int64_t tokens, std::int64_t top_k) const = 0;
};

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
