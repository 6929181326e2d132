#include "model/forward/memory.h"

namespace moracle {

Result<bool> grow(const Device& device, std::size_t bytes, std::string_view what, Buffer& buffer) {
  if (bytes <= buffer.size()) return false;
  buffer = Buffer();
  MORACLE_ASSIGN(buffer, device.allocate(bytes, what));
  return true;
}

Result<bool> MirroredMemory::reserve(const Device& device, std::size_t bytes, std::string_view what) {
  if (bytes <= image_.size()) return false;
  image_ = {};
  MORACLE_TRY(grow(device, bytes, what, memory_));
  if (is_host(device)) {
    image_ = {memory_.data(), memory_.size()};
    return true;
  }
  staging_ = StagingBuffer();
  MORACLE_ASSIGN(staging_, device.allocate_staging(bytes, what));
  image_ = {staging_.data(), staging_.size()};
  return true;
}

void MirroredMemory::upload(Stream& stream, std::size_t bytes) const {
  if (memory_.data() != image_.data()) stream.to_device(memory_.data(), image_.data(), bytes);
}

void MirroredMemory::download(Stream& stream, std::size_t begin, std::size_t end) const {
  if (memory_.data() != image_.data()) stream.to_host(image_.data() + begin, memory_.data() + begin, end - begin);
}

bool is_host(const Device& device) {
  return device.machine().device == DeviceKind::cpu;
}

}  // namespace moracle
