#include "device/host_device.h"

#include <algorithm>

#include "base/memory.h"

namespace moracle {

namespace {

template <class Memory>
Result<Memory> map_pages(const HostDevice& device, std::size_t bytes) {
  MORACLE_ASSIGN(PageBuffer pages, PageBuffer::allocate(bytes));
  if (bytes == 0) return Memory();
  return Memory(device, pages.detach(), bytes);
}

}  // namespace

Result<Buffer> HostDevice::allocate(std::size_t bytes, std::string_view /*what*/) const {
  return map_pages<Buffer>(*this, bytes);
}

Result<StagingBuffer> HostDevice::allocate_staging(std::size_t bytes, std::string_view /*what*/) const {
  return map_pages<StagingBuffer>(*this, bytes);
}

void HostDevice::release(MemoryKind /*kind*/, std::byte* data, std::size_t bytes) const {
  PageBuffer::unmap(data, bytes);
}

}  // namespace moracle
