// Counts what the process asks the system for, by taking the place of malloc and mmap.
#pragma once

#include <cstdint>

namespace moracle::test {

struct Allocations {
  std::int64_t heap = 0;      // malloc, calloc, realloc, aligned_alloc, posix_memalign; operator new calls malloc
  std::int64_t mappings = 0;  // mmap

  Allocations operator-(const Allocations& before) const { return {heap - before.heap, mappings - before.mappings}; }
};

// Of all threads, since the start.
[[nodiscard]] Allocations allocations();

}  // namespace moracle::test
