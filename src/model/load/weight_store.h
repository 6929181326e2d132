// Memory of one device for the arrays that a model's blocks read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/generic/function_ref.h"
#include "base/memory.h"
#include "base/result.h"
#include "device/array.h"
#include "kernels/weight_sink.h"

namespace moracle {

// Filled while a model loads, read from then on; arrays stay where they are and end with the store. Small arrays share
// pages. Used from one thread at a time.
class WeightStore {
 public:
  WeightStore() = default;
  WeightStore(const WeightStore&) = delete;
  WeightStore& operator=(const WeightStore&) = delete;

  // A copy of numbers of the host. Errors: "memory.allocate".
  template <class T>
  Result<DeviceArray<T>> add(std::span<const T> numbers) {
    MORACLE_ASSIGN(const std::byte* const data, copy(std::as_bytes(numbers)));
    return DeviceArray<T>{reinterpret_cast<const T*>(data), std::ssize(numbers)};
  }
  // `size` T, which `write` fills through a sink of so many bytes. Errors: "memory.allocate", those of `write`.
  template <class T>
  Result<DeviceArray<T>> fill(std::int64_t size, FunctionRef<Result<>(WeightSink&)> write) {
    MORACLE_ASSIGN(const std::byte* const data, stage(static_cast<std::size_t>(size) * sizeof(T), write));
    return DeviceArray<T>{reinterpret_cast<const T*>(data), size};
  }

 private:
  Result<std::byte*> allocate(std::size_t bytes);
  Result<const std::byte*> copy(std::span<const std::byte> bytes);
  Result<const std::byte*> stage(std::size_t bytes, FunctionRef<Result<>(WeightSink&)> write);

  std::vector<PageBuffer> memory_;
  BumpArena shared_{{}};  // what is left of the last pages that small arrays share
};

}  // namespace moracle
