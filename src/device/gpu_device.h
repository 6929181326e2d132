// A GPU, reached through the table of a device object.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "device/driver_api.h"

namespace moracle {

class GpuDevice final : public Device {
 public:
  // Errors: those of probe_devices; "device.unknown" for an ordinal that none has; "device.capability".
  static Result<std::shared_ptr<GpuDevice>> open(const DriverApi& api, int ordinal);
  // One that `api` stands for. Errors: "device.capability".
  static Result<std::shared_ptr<GpuDevice>> describe(const DriverApi& api, const Machine& machine);

  [[nodiscard]] const Machine& machine() const override { return machine_; }
  [[nodiscard]] Result<Buffer> allocate(std::size_t bytes, std::string_view what) const override;
  [[nodiscard]] Result<StagingBuffer> allocate_staging(std::size_t bytes, std::string_view what) const override;
  [[nodiscard]] Result<Stream> make_stream() const override;
  [[nodiscard]] const void* table(const char* name) const override { return api_.table(api_.self, name); }
  void release(MemoryKind kind, std::byte* data, std::size_t bytes) const override;

  [[nodiscard]] const DriverApi& api() const { return api_; }
  // Errors of this and what follows: "device.call".
  [[nodiscard]] Result<Event> make_event() const;
  // Both were recorded on streams that have been waited for.
  [[nodiscard]] Result<double> seconds_between(const Event& from, const Event& to) const;
  // Bytes that are free, whoever asks for them.
  [[nodiscard]] Result<std::uint64_t> free_memory() const;
  // Bounds what allocate() gives out in all: `most` bytes, or what is free less 2 %; 0: that alone. Once, before the
  // first allocation.
  [[nodiscard]] Result<> limit_memory(std::uint64_t most);
  // Bytes that allocate() still gives out.
  [[nodiscard]] Result<std::uint64_t> room() const;
  // The error of a call that gave `error`, or Ok.
  [[nodiscard]] Result<> check(int error, std::string_view what) const;

 private:
  GpuDevice(const DriverApi& api, int ordinal, Machine machine);
  [[nodiscard]] Error memory_error(std::size_t bytes, std::string_view what) const;
  // Whether the bytes are within the bound; they then count as given out.
  [[nodiscard]] bool take(std::size_t bytes) const;

  const DriverApi& api_;
  int ordinal_;
  Machine machine_;
  std::uint64_t most_ = UINT64_MAX;                   // that allocate() gives out
  mutable std::atomic<std::uint64_t> given_out_ = 0;  // by allocate(), less what was released
};

// What kernels need of the system: the first driver of CUDA 13.0.
inline constexpr const char* kLeastDriver = "an NVIDIA driver of version 580 or newer (CUDA 13.0)";

// Every device that the object sees. Errors: "device.driver", where there is no driver, no device or no answer.
Result<std::vector<DeviceFacts>> probe_devices(const DriverApi& api);

// Whether --device names a GPU: "cuda", "cuda:0".
[[nodiscard]] bool names_device(std::string_view text);
// `memory`: bytes that it gives out in all at most; 0: what is free less 2 %. Errors: "device.unknown" for another
// spelling, those of device_library and GpuDevice::open.
Result<std::shared_ptr<GpuDevice>> open_device(std::string_view name, std::uint64_t memory = 0);

}  // namespace moracle
