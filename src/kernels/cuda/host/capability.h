// The compute capability that a device is taken to have.
#pragma once

namespace moracle::cuda {

// A capability times ten, such as 80: a GPU that has more runs what one of that capability would, from the PTX that the
// driver compiles. The host refuses other values.
inline constexpr const char* kCapabilityVariable = "MORACLE_CUDA_ARCH";

int forced_capability();  // 0: none is
int capability_of(int major, int minor);

}  // namespace moracle::cuda
