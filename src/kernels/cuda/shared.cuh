// Addresses in shared memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace moracle::cuda {

__device__ __forceinline__ std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}

}  // namespace moracle::cuda
