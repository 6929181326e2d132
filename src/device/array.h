// An array in memory of a device, which somebody else owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace moracle {

// The host must not read through it unless the memory is the host's. An array without data but with a size is one that
// was only laid out.
template <class T>
struct DeviceArray {
  const T* data = nullptr;
  std::int64_t size = 0;

  // Numbers in memory of the host.
  static DeviceArray of(std::span<const T> numbers) { return {numbers.data(), std::ssize(numbers)}; }
  [[nodiscard]] bool empty() const { return size == 0; }
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(size) * sizeof(T); }
};

}  // namespace moracle
