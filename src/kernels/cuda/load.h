// What the kernels of a device share on the host: packed bytes on their way there, and errors of calls.
#pragma once

#include <cstdint>
#include <span>

#include "base/generic/function_ref.h"
#include "base/thread_pool.h"
#include "device/device.h"
#include "kernels/args/matrix.h"
#include "scheme/glu.h"

namespace moracle::cuda {

// Device memory of `count` blocks of `bytes` each; `write(i, block)` fills block i in zeroed host memory, on the
// threads of the pool. Errors: those of `write`, the lowest block's first; those of
// Device::allocate and allocate_pinned.
Result<Buffer> load_blocks(Device& device, ThreadPool& pool, std::int64_t count, std::uint64_t bytes,
                           FunctionRef<Result<>(std::int64_t, std::span<std::byte>)> write);

// Of runs with other than f32 inputs and outputs.
[[nodiscard]] Error wrong_type();

// Errors: "device.none".
Result<std::shared_ptr<Device>> device_of(const std::shared_ptr<Device>& device);

}  // namespace moracle::cuda
