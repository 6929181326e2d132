// A device: this machine, or a GPU of it. It gives memory and streams; what it gives must not outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "device/memory.h"
#include "device/stream.h"
#include "machine/machine.h"

namespace moracle {

class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  [[nodiscard]] virtual const Machine& machine() const = 0;
  // "cpu", "cuda:0".
  [[nodiscard]] std::string name() const { return machine().name; }

  // `what` is told when it fails. Errors: of the host "memory.allocate", of a GPU "device.memory", of its staging
  // memory "device.pinned", "device.call".
  [[nodiscard]] virtual Result<Buffer> allocate(std::size_t bytes, std::string_view what) const = 0;
  [[nodiscard]] virtual Result<StagingBuffer> allocate_staging(std::size_t bytes, std::string_view what) const = 0;
  // Errors: "device.call".
  [[nodiscard]] virtual Result<Stream> make_stream() const = 0;
  // A table of the object behind the device by its name, which begins with its version and size; null: there is none.
  [[nodiscard]] virtual const void* table(const char* name) const = 0;

  // For the owners of memory.
  virtual void release(MemoryKind kind, std::byte* data, std::size_t bytes) const = 0;
};

template <MemoryKind kind>
DeviceMemory<kind>::~DeviceMemory() {
  if (data_ != nullptr) device_->release(kind, data_, bytes_);
}

}  // namespace moracle
