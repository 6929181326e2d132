// A device object over host memory, which a program opens as it opens libmoracle_cuda.so.
//
// MORACLE_HOST_OBJECT_BYTES: how much memory the device has. MORACLE_HOST_OBJECT_CAPABILITY: its compute capability,
// times 10. MORACLE_HOST_OBJECT_DRIVER: a driver that is too old, as 12040 of CUDA 12.4.
#include <cstdlib>

#include "support/fake_device.h"

extern "C" __attribute__((visibility("default"))) const moracle::DriverApi* moracle_device_api() {
  static moracle::test::FakeDevice device;
  if (const char* const bytes = std::getenv("MORACLE_HOST_OBJECT_BYTES"); bytes != nullptr)
    device.most_bytes = std::strtoull(bytes, nullptr, 10);
  if (const char* const capability = std::getenv("MORACLE_HOST_OBJECT_CAPABILITY"); capability != nullptr)
    device.capability = std::atoi(capability);
  if (const char* const driver = std::getenv("MORACLE_HOST_OBJECT_DRIVER"); driver != nullptr) {
    device.probe_error = moracle::kDeviceNoDriver;
    device.driver = std::atoi(driver);
  }
  return &device.api();
}
