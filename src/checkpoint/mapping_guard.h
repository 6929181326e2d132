// Turns a page that vanishes under a reader into a flag. A file that shrinks while it is mapped makes every access past
// its new end raise SIGBUS; this guard answers the signal with zero pages and remembers it.
#pragma once

#include <cstddef>

namespace moracle {

// Puts a mapping under guard for as long as the object lives. The first one installs the process's SIGBUS handler,
// once; faults outside guarded mappings go on to the handler that was there before.
class MappingGuard {
 public:
  // `address` is page-aligned. Without a free slot (see kMappings in the source) the guard is inactive.
  MappingGuard(const void* address, std::size_t size);
  ~MappingGuard();
  MappingGuard(const MappingGuard&) = delete;
  MappingGuard& operator=(const MappingGuard&) = delete;

  [[nodiscard]] bool active() const { return slot_ >= 0; }
  // Whether a page of the mapping was missing when it was read. Everything read since may be zeros.
  [[nodiscard]] bool torn() const;

 private:
  int slot_ = -1;
};

}  // namespace moracle
