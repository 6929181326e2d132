#include "base/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>

#include "base/checked.h"

namespace moracle {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

void* map_anonymous(std::size_t bytes) {
  return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

// A mapping that begins on a whole huge page. Systems align mappings of whole huge pages only, if any; elsewhere the
// first and the last ones would be small pages, and equal parts of the memory would meet inside huge pages.
void* map_huge(std::size_t bytes) {
  void* const address = map_anonymous(bytes < SIZE_MAX - kHugePage ? bytes + kHugePage : bytes);
  if (address == MAP_FAILED) return address;
  auto* const begin = static_cast<std::byte*>(address);
  const std::size_t before = (kHugePage - reinterpret_cast<std::uintptr_t>(begin) % kHugePage) % kHugePage;
  if (before > 0) munmap(begin, before);
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t used = (before + bytes + page - 1) / page * page;
  if (used < bytes + kHugePage) munmap(begin + used, bytes + kHugePage - used);
  madvise(begin + before, bytes, MADV_HUGEPAGE);  // best effort: without it the pages are 4 KiB
  return begin + before;
}

}  // namespace

Result<PageBuffer> PageBuffer::allocate(std::size_t bytes) {
  PageBuffer buffer;
  if (bytes == 0) return buffer;
  void* const address = bytes >= kHugePage ? map_huge(bytes) : map_anonymous(bytes);
  if (address == MAP_FAILED) {
    return Error{.code = "memory.allocate",
                 .wanted = std::to_string(bytes) + " bytes of anonymous memory",
                 .found = std::strerror(errno),
                 .advice = "free memory or choose a smaller model"};
  }
  buffer.data_ = static_cast<std::byte*>(address);
  buffer.size_ = bytes;
  return buffer;
}

PageBuffer::~PageBuffer() {
  if (data_ != nullptr) unmap(data_, size_);
}

void PageBuffer::unmap(std::byte* data, std::size_t bytes) {
  munmap(data, bytes);
}

std::size_t address_space_left() {
  struct rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  std::size_t pages = 0;  // mapped now
  std::ifstream("/proc/self/statm") >> pages;
  const std::size_t mapped = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return limit.rlim_cur > mapped ? limit.rlim_cur - mapped : 0;
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
