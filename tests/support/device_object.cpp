// Device objects that a program must refuse, by what is defined: of another version or size, or without a table.
#include "device/driver_api.h"

namespace {

[[maybe_unused]] constexpr moracle::DriverApi kApi{.version = MORACLE_OBJECT_VERSION, .bytes = MORACLE_OBJECT_BYTES};

}  // namespace

#ifdef MORACLE_OBJECT_EXPORTS
extern "C" const moracle::DriverApi* moracle_device_api() {
  return &kApi;
}
#endif
