// Where work is done: this machine, and the GPU that computes its experts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "device/gpu_device.h"
#include "machine/machine.h"

namespace moracle {

struct Place {
  Machine host;
  std::shared_ptr<GpuDevice> device{};  // null: the host computes everything
  // That of the device, if there is one.
  [[nodiscard]] Machine machine() const { return device != nullptr ? device->machine() : host; }
};

// What questions are about: also a machine elsewhere, as the host. Errors: those of resolve_machine and open_device.
// They are said to be of `where`, which named the device. `memory`: as of open_device; other machines leave it alone.
Result<Place> resolve_place(const std::string& device, std::string_view where, std::uint64_t memory = 0);

// Where work can be done: "cpu", the name of this machine, or a GPU of it. Errors: "device.elsewhere" when the device
// is not of this machine, those of resolve_place.
Result<Place> place_of_work(const std::string& device, std::string_view where, std::uint64_t memory = 0);

}  // namespace moracle
