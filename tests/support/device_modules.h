// The host's operations and packed kernels as those of a fake device: they run when its stream does.
#pragma once

#include <memory>

#include "base/thread_pool.h"
#include "kernels/kernel.h"
#include "kernels/ops.h"

namespace moracle::test {

// Arguments are copied when a call is enqueued; what they point to is read when it runs, on the threads of `pool`,
// which outlives them. Streams are those of a FakeDevice.
[[nodiscard]] std::unique_ptr<Ops> ops_on_device(const Ops& host, ThreadPool& pool);
[[nodiscard]] std::unique_ptr<PackedLinear> on_device(std::unique_ptr<PackedLinear> linear, ThreadPool& pool);
[[nodiscard]] std::unique_ptr<PackedExperts> on_device(std::unique_ptr<PackedExperts> experts, ThreadPool& pool);

}  // namespace moracle::test
