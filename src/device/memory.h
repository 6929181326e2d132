// Memory that a device gives, owned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace moracle {

class Device;

// Memory that kernels of the device read and write, or memory of the host that the device copies from and to while the
// host goes on.
enum class MemoryKind : std::uint8_t { device, staging };

// One allocation. The device takes it back when its owner ends, and outlives it.
template <MemoryKind kind>
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const Device& device, std::byte* data, std::size_t bytes)
      : device_(&device), data_(data), bytes_(bytes) {}
  DeviceMemory(DeviceMemory&& other) noexcept
      : device_(std::exchange(other.device_, nullptr)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return bytes_; }

 private:
  const Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};
using Buffer = DeviceMemory<MemoryKind::device>;
using StagingBuffer = DeviceMemory<MemoryKind::staging>;

}  // namespace moracle
