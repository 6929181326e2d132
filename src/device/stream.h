// Work in order on one device.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "base/thread_pool.h"
#include "device/driver_api.h"

namespace moracle {

class GpuDevice;

// One handle of the table, released by `Release`.
template <class Release>
class DeviceHandle {
 public:
  DeviceHandle() = default;
  DeviceHandle(const GpuDevice& device, void* handle) : device_(&device), handle_(handle) {}
  DeviceHandle(DeviceHandle&& other) noexcept
      : device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}
  DeviceHandle& operator=(DeviceHandle&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  DeviceHandle(const DeviceHandle&) = delete;
  DeviceHandle& operator=(const DeviceHandle&) = delete;
  ~DeviceHandle() {
    if (handle_ != nullptr) Release{}(*device_, handle_);
  }

  [[nodiscard]] void* get() const { return handle_; }
  [[nodiscard]] const GpuDevice& device() const { return *device_; }

 private:
  const GpuDevice* device_ = nullptr;
  void* handle_ = nullptr;
};

struct DropStream {
  void operator()(const GpuDevice& device, void* stream) const;
};
struct DropEvent {
  void operator()(const GpuDevice& device, void* event) const;
};
struct DropGraph {
  void operator()(const GpuDevice& device, void* graph) const;
};

// A point in the work of a stream. Of the host it is empty: its work is done when it is enqueued.
using Event = DeviceHandle<DropEvent>;

// Recorded work. Of the host: what to call.
class Graph {
 public:
  explicit Graph(DeviceHandle<DropGraph> handle) : handle_(std::move(handle)) {}
  explicit Graph(std::function<void()> body) : body_(std::move(body)) {}

 private:
  friend class Stream;
  DeviceHandle<DropGraph> handle_;
  std::function<void()> body_;
};

// Work in order. Everything but wait() enqueues; a stream of the host has done what was enqueued when the call returns.
// After a failure the stream keeps the first error, and wait() reports it: a chain of calls is checked once.
class Stream {
 public:
  Stream() = default;
  explicit Stream(DeviceHandle<DropStream> handle) : handle_(std::move(handle)) {}
  // The host's, on the threads of a pool that outlives it.
  explicit Stream(ThreadPool& pool) : pool_(&pool) {}

  [[nodiscard]] bool on_host() const { return pool_ != nullptr; }
  [[nodiscard]] ThreadPool& pool() const { return *pool_; }  // of the host's

  void to_device(void* to, const void* from, std::size_t bytes) { copy(to, from, bytes, CopyKind::to_device); }
  void to_host(void* to, const void* from, std::size_t bytes) { copy(to, from, bytes, CopyKind::to_host); }
  void on_device(void* to, const void* from, std::size_t bytes) { copy(to, from, bytes, CopyKind::on_device); }
  void fill(void* to, int byte, std::size_t bytes);
  void record(const Event& event);
  void after(const Event& event);
  // Of a call that found something wrong with its arguments; outputs are then undefined.
  void fail(Error error) {
    if (!failed_) failed_ = std::move(error);
  }
  // On a stream of a device. `name`, a constant, is told in the error of this launch, and of one that only a later call
  // reports.
  template <class Args>
  void launch(std::string_view name, int (*function)(void*, void*, const Args*), const Args& args) {
    last_ = name;
    keep(function(self(), handle_.get(), &args), name);
  }
  template <class Args>
  void launch(std::string_view name, int (*function)(void*, void*, const Args*, std::byte*), const Args& args,
              std::byte* workspace = nullptr) {
    last_ = name;
    keep(function(self(), handle_.get(), &args, workspace), name);
  }
  void launch(const Graph& graph);
  // Errors: what any call since the last wait ran into.
  Result<> wait();
  // Records what `body` enqueues. Errors: what it ran into; nothing has run then.
  Result<Graph> capture(std::function<void()> body);

 private:
  void copy(void* to, const void* from, std::size_t bytes, CopyKind kind);
  void keep(int error, std::string_view what);
  [[nodiscard]] void* self() const;

  DeviceHandle<DropStream> handle_;
  ThreadPool* pool_ = nullptr;
  std::optional<Error> failed_;
  std::string_view last_;  // kernel, a constant name
};

}  // namespace moracle
