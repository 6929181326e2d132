// What calls from another device use on a device.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "device/gpu_device.h"
#include "device/host_device.h"

namespace moracle {

// A stream, memory of the device, and memory of the host that both copy from and to. Grown while a model loads and
// reserves, never in a call; calls use it one after the other.
class DeviceWorkspace {
 public:
  // The device outlives what is made of it. Null: nothing can be reserved, only counted.
  explicit DeviceWorkspace(std::shared_ptr<const GpuDevice> gpu) : device_(gpu), gpu_(std::move(gpu)) {}
  // `caller`: the GPU whose copies the staging memory is for; null: the caller is the host.
  explicit DeviceWorkspace(const std::shared_ptr<const HostDevice>& host,
                           std::shared_ptr<const GpuDevice> caller = nullptr)
      : device_(host), caller_(std::move(caller)), threads_(host->pool().threads()) {}

  [[nodiscard]] const Device& device() const { return *device_; }
  // Null: of the host.
  [[nodiscard]] const GpuDevice* gpu() const { return gpu_.get(); }
  // Of the host; of a GPU 0.
  [[nodiscard]] int threads() const { return threads_; }
  // At least so much of both. Errors: those of Device::allocate, allocate_staging and make_stream.
  Result<> reserve(std::size_t staging, std::size_t memory);
  [[nodiscard]] Stream& stream() { return stream_; }
  [[nodiscard]] std::span<std::byte> staging() const { return {staging_.data(), staging_.size()}; }
  [[nodiscard]] std::span<std::byte> memory() const { return {memory_.data(), memory_.size()}; }

  // Around what a call enqueues on a GPU besides its copies.
  void start_clock() { stream_.record(begin_); }
  void stop_clock() { stream_.record(end_); }
  // Seconds that the GPU took for that, of the last call that was waited for.
  [[nodiscard]] Result<double> seconds() const { return gpu_->seconds_between(begin_, end_); }

 private:
  Result<> make_stream();

  std::shared_ptr<const Device> device_;
  std::shared_ptr<const GpuDevice> gpu_;
  std::shared_ptr<const GpuDevice> caller_;
  int threads_ = 0;
  Stream stream_;
  Event begin_;
  Event end_;
  StagingBuffer staging_;
  Buffer memory_;
  bool made_ = false;  // stream and events
};

}  // namespace moracle
