// A device and what lives on it. Owners release through the table; none may outlive its Device. The host is a stream
// alone: its memory is the process's.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "device/driver_api.h"
#include "machine/machine.h"

namespace moracle {

class Device;

// One handle of the table, released by `Release`.
template <class Release>
class DeviceHandle {
 public:
  DeviceHandle() = default;
  DeviceHandle(const Device& device, void* handle) : device_(&device), handle_(handle) {}
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
  [[nodiscard]] const Device& device() const { return *device_; }

 private:
  const Device* device_ = nullptr;
  void* handle_ = nullptr;
};

struct ReleaseMemory {
  void operator()(const Device& device, void* memory) const;
};
struct ReleasePinned {
  void operator()(const Device& device, void* memory) const;
};
struct DropStream {
  void operator()(const Device& device, void* stream) const;
};
struct DropEvent {
  void operator()(const Device& device, void* event) const;
};
struct DropGraph {
  void operator()(const Device& device, void* graph) const;
};

// Memory of the device, or pinned memory of the host.
template <class Release>
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(DeviceHandle<Release> handle, std::size_t bytes) : handle_(std::move(handle)), bytes_(bytes) {}
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(handle_.get()); }
  [[nodiscard]] std::size_t size() const { return bytes_; }

 private:
  DeviceHandle<Release> handle_;
  std::size_t bytes_ = 0;
};
using Buffer = DeviceMemory<ReleaseMemory>;
using PinnedBuffer = DeviceMemory<ReleasePinned>;
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

// What calls from the host share: a stream, pinned memory to pass inputs and outputs through, and scratch memory of the
// device. Grown while models load and reserve, never in a call.
class Stage {
 public:
  [[nodiscard]] Stream& stream() { return stream_; }
  [[nodiscard]] std::span<std::byte> pinned() const { return {pinned_.data(), pinned_.size()}; }
  [[nodiscard]] std::span<std::byte> scratch() const { return {scratch_.data(), scratch_.size()}; }
  // Around what a call enqueues besides its copies.
  void begin() { stream_.record(begin_); }
  void end() { stream_.record(end_); }
  // Seconds that the device took for that, of the last call that was waited for.
  [[nodiscard]] Result<double> seconds() const;

 private:
  friend class Device;
  Stream stream_;
  Event begin_;
  Event end_;
  PinnedBuffer pinned_;
  Buffer scratch_;
  bool made_ = false;
};

// Pinned memory that weights pass through on their way to a device, and streams that copy parts of it. Nobody uses it
// between two packs.
class LoadRing {
 public:
  explicit LoadRing(const Device& device) : device_(device) {}
  // Bytes that a pack may take.
  [[nodiscard]] std::size_t limit() const { return limit_; }
  void set_limit(std::size_t bytes) { limit_ = bytes; }
  // At least so much of both. Errors: those of Device::allocate_pinned, "device.call".
  Result<> reserve(std::size_t bytes, std::size_t streams);
  [[nodiscard]] std::byte* data() const { return memory_.data(); }
  [[nodiscard]] std::span<Stream> streams() { return streams_; }

 private:
  const Device& device_;
  std::size_t limit_ = std::size_t{256} << 20U;
  PinnedBuffer memory_;
  std::vector<Stream> streams_;
};

class Device {
 public:
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  // Errors: those of probe_devices; "device.unknown" for an ordinal that none has; "device.capability".
  static Result<std::shared_ptr<Device>> open(const DriverApi& api, int ordinal);

  [[nodiscard]] const DriverApi& api() const { return api_; }
  [[nodiscard]] int ordinal() const { return ordinal_; }
  [[nodiscard]] const DeviceFacts& facts() const { return facts_; }
  [[nodiscard]] std::string name() const { return "cuda:" + std::to_string(ordinal_); }
  [[nodiscard]] Machine machine() const;

  // `what` is told when it fails. Errors: "device.memory", of pinned memory "device.pinned"; "device.call".
  Result<Buffer> allocate(std::size_t bytes, std::string_view what) const;
  Result<PinnedBuffer> allocate_pinned(std::size_t bytes, std::string_view what) const;
  Result<Stream> make_stream() const;
  Result<Event> make_event() const;
  Result<double> seconds_between(const Event& from, const Event& to) const;
  // Bytes that nobody has taken. Errors: "device.call".
  Result<std::uint64_t> free_memory() const;
  // Room of at least these sizes on the stage. Errors: those of allocate, "device.call".
  Result<> reserve_stage(std::size_t pinned, std::size_t scratch);
  // Memory that kernels of all packs keep from call to call, all ones at first: made once, of one size. Packs of a
  // device run one after the other. Errors: those of allocate, "device.call".
  Result<std::byte*> kernel_state(std::size_t bytes);
  [[nodiscard]] Stage& stage() { return stage_; }
  // One for all who hold it at a time, empty at first: a load of a model holds it from layer to layer.
  [[nodiscard]] std::shared_ptr<LoadRing> load_ring();
  // Bytes a second from pinned memory of the host to the device, measured. Errors: those of allocate, "device.call".
  Result<double> copy_rate();
  // Of a call whose memory was reserved for fewer tokens.
  [[nodiscard]] Error unreserved_batch(std::int64_t tokens) const;
  // The error of a call that gave `error`, or Ok.
  [[nodiscard]] Result<> check(int error, std::string_view what) const;

 private:
  Device(const DriverApi& api, int ordinal, const DeviceFacts& facts) : api_(api), ordinal_(ordinal), facts_(facts) {}
  [[nodiscard]] Error memory_error(std::size_t bytes, std::string_view what) const;

  const DriverApi& api_;
  int ordinal_;
  DeviceFacts facts_;
  Stage stage_;
  Buffer kernel_state_;
  std::weak_ptr<LoadRing> load_ring_;
};

// Every device that the object sees. Errors: "device.driver", where there is no driver, no device or no answer.
Result<std::vector<DeviceFacts>> probe_devices(const DriverApi& api);

// Whether --device names a device of this kind: "cuda", "cuda:0".
[[nodiscard]] bool names_device(std::string_view text);
// Errors: "device.unknown" for another spelling, those of device_library and Device::open.
Result<std::shared_ptr<Device>> open_device(std::string_view name);

}  // namespace moracle
