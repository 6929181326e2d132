// A device object over host memory, which a program opens as it opens libmoracle_cuda.so.
#include "support/fake_device.h"

extern "C" __attribute__((visibility("default"))) const moracle::DeviceApi* moracle_device_api() {
  static const moracle::test::FakeDevice kDevice;
  return &kDevice.api();
}
