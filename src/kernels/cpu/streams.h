// How weights are best read from this machine's memory: as one stream a thread, or as several at a time.
//
// Which is faster is the memory's doing: on one kind of server a thread gets 12 GB/s from one stream and 18 from eight,
// on another a second stream costs 40 %. So it is measured, once a process, on the first large layer that is packed.
// The choice moves no bit of a result.
#pragma once

#include <cstddef>
#include <span>

#include "base/thread_pool.h"

namespace moracle::cpu {

// Whether kernels read several panels at a time. False until it was measured. The environment variable
// MORACLE_STREAMS=one|many decides instead.
[[nodiscard]] bool many_streams();

// Decides it, as a user or a test does.
void choose_streams(bool many);

// Measures on weights just packed, unless that was done or they are too few to tell. Takes about 20 ms.
void measure_streams(std::span<const std::byte> weights, ThreadPool& pool);

}  // namespace moracle::cpu
