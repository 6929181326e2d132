#include "kernels/pack_memory.h"

#include <string>

namespace moracle {

Result<> UploadBuffer::reserve(std::size_t bytes, std::size_t streams) {
  if (bytes > memory_.size()) {
    memory_ = StagingBuffer();
    MORACLE_ASSIGN(memory_, device_.allocate_staging(bytes, "weights on their way to the device"));
  }
  while (streams_.size() < streams) {
    MORACLE_ASSIGN(Stream stream, device_.make_stream());
    streams_.push_back(std::move(stream));
  }
  return Ok{};
}

Result<> PersistentScratch::reserve(std::size_t bytes) {
  if (bytes <= memory_.size()) return Ok{};
  MORACLE_ASSIGN(Stream stream, device_->make_stream());
  MORACLE_ASSIGN(Buffer made, device_->allocate(bytes, "what kernels keep between calls"));
  stream.fill(made.data(), 0xFF, bytes);
  MORACLE_TRY(stream.wait());
  memory_ = std::move(made);
  return Ok{};
}

Error unreserved_batch(const Device& device, std::int64_t tokens) {
  return {.code = "device.batch",
          .where = device.name(),
          .wanted = "a batch that was reserved",
          .found = std::to_string(tokens) + " tokens"};
}

}  // namespace moracle
