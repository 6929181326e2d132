// The device object: a shared object of its own, opened at run time, so that the program starts where no driver is.
#pragma once

#include <filesystem>
#include <vector>

#include "base/result.h"
#include "device/driver_api.h"

namespace moracle {

inline constexpr const char* kCudaLibraryName = "libmoracle_cuda.so";

// Opens one object and compares version and size; it stays open until the process ends. Errors: "device.library",
// "device.version".
Result<const DriverApi*> open_device_library(const std::filesystem::path& path);

// Where the object is looked for: MORACLE_CUDA_LIBRARY alone where it is set, else beside the program, then in
// ../lib/moracle, then beside the shared library that this code is in.
[[nodiscard]] std::vector<std::filesystem::path> device_library_paths();

// The first of these that exists, opened once a process. Errors: "device.library" that names every place, those of
// open_device_library.
const Result<const DriverApi*>& device_library();

}  // namespace moracle
