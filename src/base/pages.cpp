#include "base/pages.h"

#include <sys/mman.h>
#include <unistd.h>

namespace moracle {

std::size_t page_bytes() {
  return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

void give_back_pages(std::byte* begin, std::size_t bytes) {
  madvise(begin, bytes, MADV_DONTNEED);
}

}  // namespace moracle
