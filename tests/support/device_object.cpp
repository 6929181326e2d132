// Device objects that a program must refuse, by what is defined: of another version or size, or without a table.
#include "device/device_api.h"

namespace {

[[maybe_unused]] constexpr moracle::DeviceApi kApi{.version = MORACLE_OBJECT_VERSION, .bytes = MORACLE_OBJECT_BYTES};

}  // namespace

#ifdef MORACLE_OBJECT_EXPORTS
extern "C" const moracle::DeviceApi* moracle_device_api() {
  return &kApi;
}
#endif
