#include "base/memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "base/checked.h"

namespace moracle {

namespace {
constexpr std::size_t kHugePage = std::size_t{2} << 20;
}

Result<PageBuffer> PageBuffer::allocate(std::size_t bytes) {
  PageBuffer buffer;
  if (bytes == 0) return buffer;
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    return Error{.code = "memory.allocate",
                 .wanted = std::to_string(bytes) + " bytes of anonymous memory",
                 .found = std::strerror(errno),
                 .advice = "free memory or choose a smaller model"};
  }
  if (bytes >= kHugePage) madvise(address, bytes, MADV_HUGEPAGE);  // best effort: without it the pages are 4 KiB
  buffer.data_ = static_cast<std::byte*>(address);
  buffer.size_ = bytes;
  return buffer;
}

PageBuffer::~PageBuffer() {
  if (data_ != nullptr) munmap(data_, size_);
}

std::size_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word == "VmHWM:") {
      std::size_t kib = 0;
      status >> kib;
      return kib * 1024;
    }
  }
  return 0;
}

}  // namespace moracle
