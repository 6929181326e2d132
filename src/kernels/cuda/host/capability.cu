// Which kernels the current device takes.
#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <cstdlib>

#include "device/driver_api.h"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/host/capability.h"

namespace moracle::cuda {

int forced_capability() {
  static const int forced = [] {
    const char* const text = std::getenv(kCapabilityVariable);
    return text != nullptr ? std::atoi(text) : 0;
  }();
  return forced;
}

int capability_of(int major, int minor) {
  const int own = 10 * major + minor;
  return forced_capability() > 0 && forced_capability() < own ? forced_capability() : own;
}

int capability() {
  constexpr int kMostDevices = 64;
  static std::array<std::atomic<int>, kMostDevices> known{};
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device < 0 || device >= kMostDevices) return 0;
  std::atomic<int>& own = known[static_cast<std::size_t>(device)];
  if (own.load(std::memory_order_relaxed) != 0) return own.load(std::memory_order_relaxed);
  int major = 0;
  int minor = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess)
    return 0;
  own.store(capability_of(major, minor), std::memory_order_relaxed);
  return own.load(std::memory_order_relaxed);
}

}  // namespace moracle::cuda
