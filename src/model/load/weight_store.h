// Memory of one device for the arrays that a model's blocks read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/generic/function_ref.h"
#include "base/memory.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "device/array.h"
#include "device/device.h"
#include "kernels/upload.h"

namespace moracle {

// Filled while a model loads, read from then on; arrays stay where they are and end with the store. Small arrays share
// an allocation. Used from one thread at a time.
class WeightStore {
 public:
  // `upload`, for the time of the load, is what numbers pass through to a GPU; null: the device is the host.
  explicit WeightStore(std::shared_ptr<const Device> device, UploadBuffer* upload = nullptr)
      : device_(std::move(device)), upload_(upload) {}

  // A copy of numbers of the host. Errors of both: those of Device::allocate and upload().
  template <class T>
  Result<DeviceArray<T>> add(std::span<const T> numbers) {
    MORACLE_ASSIGN(const std::byte* const data, copy(std::as_bytes(numbers)));
    return DeviceArray<T>{reinterpret_cast<const T*>(data), std::ssize(numbers)};
  }
  // `size` T, which `write` fills through a sink of so many bytes, up to `block_bytes` at a time, on up to `threads`
  // workers. Errors: also those of `write`.
  template <class T>
  Result<DeviceArray<T>> fill(std::int64_t size, std::size_t block_bytes, int threads,
                              FunctionRef<Result<>(WeightSink&)> write) {
    MORACLE_ASSIGN(const std::byte* const data,
                   stage(static_cast<std::size_t>(size) * sizeof(T), block_bytes, threads, write));
    return DeviceArray<T>{reinterpret_cast<const T*>(data), size};
  }

 private:
  Result<std::byte*> allocate(std::size_t bytes);
  Result<const std::byte*> copy(std::span<const std::byte> bytes);
  Result<const std::byte*> stage(std::size_t bytes, std::size_t block_bytes, int threads,
                                 FunctionRef<Result<>(WeightSink&)> write);

  std::shared_ptr<const Device> device_;  // outlives the memory
  UploadBuffer* upload_;
  std::vector<Buffer> memory_;
  BumpArena shared_{{}};  // what is left of the last allocation that small arrays share
};

}  // namespace moracle
