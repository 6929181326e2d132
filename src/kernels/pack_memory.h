// What the packs of one GPU share, beside their weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "device/device.h"

namespace moracle {

// Staging memory that packed weights pass through on their way to a GPU, and streams that copy parts of it. One pack
// uses it at a time. The device outlives it.
class UploadBuffer {
 public:
  static constexpr std::size_t kLimit = std::size_t{256} << 20U;

  // `limit`: bytes that a pack may take.
  explicit UploadBuffer(const Device& device, std::size_t limit = kLimit) : device_(device), limit_(limit) {}
  [[nodiscard]] std::size_t limit() const { return limit_; }
  // At least so much of both. Errors: those of Device::allocate_staging and make_stream.
  Result<> reserve(std::size_t bytes, std::size_t streams);
  [[nodiscard]] std::byte* data() const { return memory_.data(); }
  [[nodiscard]] std::span<Stream> streams() { return streams_; }

 private:
  const Device& device_;
  std::size_t limit_;
  StagingBuffer memory_;
  std::vector<Stream> streams_;
};

// Memory of a GPU that kernels keep from call to call, all ones at first. Packs that share it run one after the other.
class PersistentScratch {
 public:
  explicit PersistentScratch(std::shared_ptr<const Device> device) : device_(std::move(device)) {}
  // At least so many bytes, while nothing runs. Errors: those of Device::allocate and make_stream.
  Result<> reserve(std::size_t bytes);
  [[nodiscard]] std::byte* data() const { return memory_.data(); }
  [[nodiscard]] std::size_t size() const { return memory_.size(); }

 private:
  std::shared_ptr<const Device> device_;  // outlives the memory
  Buffer memory_;
};

// Of a call whose memory was reserved for fewer tokens.
[[nodiscard]] Error unreserved_batch(const Device& device, std::int64_t tokens);

}  // namespace moracle
