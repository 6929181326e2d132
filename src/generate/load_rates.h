// How fast memory and files of this machine are: what a load is held against.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "base/thread_pool.h"
#include "device/gpu_device.h"

namespace moracle {

// Bytes a second of all threads together; 0 where it could not be measured.
struct LoadRates {
  double copy = 0;  // memory to fresh anonymous memory, which the system first clears
  double read = 0;  // file to fresh anonymous memory, from the page cache or from the disk, wherever the file is now
  double to_device = 0;  // pinned memory to the GPU that computes
};

// Measures on half of `bytes` of memory, 2.3 GiB at most; all is given back. Of the files a sixteenth
// is read, in pieces spread over them, which leave the page cache again unless the files were in it; then it is a
// quarter.
[[nodiscard]] LoadRates measure_load_rates(std::span<const std::string> files, std::uint64_t bytes, ThreadPool& pool);

// Bytes a second from staging memory to a GPU, on 64 MiB of both. Errors: those of GpuDevice::allocate, "device.call".
[[nodiscard]] Result<double> measure_copy_rate(const GpuDevice& device);

}  // namespace moracle
