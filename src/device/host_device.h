// This machine as a device.
#pragma once

#include "base/thread_pool.h"
#include "device/device.h"

namespace moracle {

// Its streams compute on the threads of a pool, which outlives them and the device; memory is pages of the process.
class HostDevice final : public Device {
 public:
  HostDevice(Machine machine, ThreadPool& pool) : machine_(std::move(machine)), pool_(pool) {}

  [[nodiscard]] const Machine& machine() const override { return machine_; }
  [[nodiscard]] ThreadPool& pool() const { return pool_; }
  [[nodiscard]] Result<Buffer> allocate(std::size_t bytes, std::string_view what) const override;
  [[nodiscard]] Result<StagingBuffer> allocate_staging(std::size_t bytes, std::string_view what) const override;
  [[nodiscard]] Result<Stream> make_stream() const override { return Stream(pool_); }
  [[nodiscard]] const void* table(const char* /*name*/) const override { return nullptr; }
  void release(MemoryKind kind, std::byte* data, std::size_t bytes) const override;

 private:
  Machine machine_;
  ThreadPool& pool_;
};

}  // namespace moracle
