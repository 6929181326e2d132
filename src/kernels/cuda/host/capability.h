// The compute capability that a device is taken to have.
#pragma once

namespace moracle::cuda {

// What kCapabilityVariable (device/driver_api.h) asks for; 0: nothing.
int forced_capability();
int capability_of(int major, int minor);

}  // namespace moracle::cuda
