// A GPU, reached through the table of a device object.
#pragma once

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
  // Bytes that are free.
  [[nodiscard]] Result<std::uint64_t> free_memory() const;
  // The error of a call that gave `error`, or Ok.
  [[nodiscard]] Result<> check(int error, std::string_view what) const;

 private:
  GpuDevice(const DriverApi& api, int ordinal, const DeviceFacts& facts);
  [[nodiscard]] Error memory_error(std::size_t bytes, std::string_view what) const;

  const DriverApi& api_;
  int ordinal_;
  Machine machine_;
};

// Every device that the object sees. Errors: "device.driver", where there is no driver, no device or no answer.
Result<std::vector<DeviceFacts>> probe_devices(const DriverApi& api);

// Whether --device names a GPU: "cuda", "cuda:0".
[[nodiscard]] bool names_device(std::string_view text);
// Errors: "device.unknown" for another spelling, those of device_library and GpuDevice::open.
Result<std::shared_ptr<GpuDevice>> open_device(std::string_view name);

}  // namespace moracle
