// A device object over host memory, which a program opens as it opens libmoracle_cuda.so.
//
// MORACLE_HOST_OBJECT_BYTES: how much memory the device has.
#include <cstdlib>

#include "support/fake_device.h"

extern "C" __attribute__((visibility("default"))) const moracle::DriverApi* moracle_device_api() {
  static moracle::test::FakeDevice device;
  if (const char* const bytes = std::getenv("MORACLE_HOST_OBJECT_BYTES"); bytes != nullptr)
    device.most_bytes = std::strtoull(bytes, nullptr, 10);
  return &device.api();
}
