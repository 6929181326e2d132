// What the kernels of a device share on the host: packed bytes on their way there, and errors of calls.
#pragma once

#include <cstdint>
#include <span>

#include "base/generic/function_ref.h"
#include "device/gpu_device.h"
#include "kernels/args/matrix.h"
#include "kernels/kernel.h"
#include "scheme/glu.h"

namespace moracle::cuda {

// Device memory of `count` blocks of `bytes` each; `write(i, block)` fills block i in zeroed host memory, on the
// threads of the options' pool. Errors: those of `write`, the lowest block's first; those of Device::allocate and
// allocate_staging.
Result<Buffer> load_blocks(const PackOptions& options, std::int64_t count, std::uint64_t bytes,
                           FunctionRef<Result<>(std::int64_t, std::span<std::byte>)> write);

// Of runs with other than f32 inputs and outputs.
[[nodiscard]] Error wrong_type();

// Errors: "device.none".
Result<std::shared_ptr<GpuDevice>> device_of(const std::shared_ptr<GpuDevice>& device);

}  // namespace moracle::cuda
