// Memory that grows with the calls of a forward pass, and what the host shares of it.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "base/result.h"
#include "device/device.h"

namespace moracle {

// At least `bytes`; what was there is lost. True: it lies elsewhere now. Errors: those of Device::allocate.
Result<bool> grow(const Device& device, std::size_t bytes, std::string_view what, Buffer& buffer);

// Memory of a device with its image in memory of the host, between which it is copied. On the host both are one.
class MirroredMemory {
 public:
  // As of grow().
  Result<bool> reserve(const Device& device, std::size_t bytes, std::string_view what);
  [[nodiscard]] std::span<std::byte> image() const { return image_; }
  // Of the device, as long as the image.
  [[nodiscard]] std::span<std::byte> memory() const { return {memory_.data(), image_.size()}; }
  // Where the device has what the image has here.
  template <class T>
  [[nodiscard]] T* on_device(T* at) const {
    return reinterpret_cast<T*>(memory_.data() + (reinterpret_cast<const std::byte*>(at) - image_.data()));
  }
  // The first `bytes`.
  void upload(Stream& stream, std::size_t bytes) const;
  // Bytes [begin, end).
  void download(Stream& stream, std::size_t begin, std::size_t end) const;

 private:
  Buffer memory_;
  StagingBuffer staging_;
  std::span<std::byte> image_{};
};

// Whether streams of a device have done what was enqueued, in memory that the host reads.
[[nodiscard]] bool is_host(const Device& device);

}  // namespace moracle
