#include "allocations/allocation_counter.h"

#include <cerrno>
#include <cstddef>

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>

namespace {
// Constant initialization: malloc is called before any constructor runs.
constinit std::atomic<std::int64_t> heap_calls{0};
constinit std::atomic<std::int64_t> mapping_calls{0};
}  // namespace

namespace moracle::test {

Allocations allocations() {
  return {heap_calls.load(), mapping_calls.load()};
}

}  // namespace moracle::test

// The C library's own names for what is replaced here.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): they are not ours to choose
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* at, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);

void* malloc(std::size_t size) {
  heap_calls.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(size);
}

void* calloc(std::size_t count, std::size_t size) {
  heap_calls.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(count, size);
}

void* realloc(void* at, std::size_t size) {
  heap_calls.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(at, size);
}

void* aligned_alloc(std::size_t alignment, std::size_t size) {
  heap_calls.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, size);
}

int posix_memalign(void** out, std::size_t alignment, std::size_t size) {
  heap_calls.fetch_add(1, std::memory_order_relaxed);
  *out = __libc_memalign(alignment, size);
  return *out == nullptr ? ENOMEM : 0;
}

void* mmap(void* at, std::size_t size, int protection, int flags, int file, off_t offset) {
  mapping_calls.fetch_add(1, std::memory_order_relaxed);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): what the system call returns is an address
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, size, protection, flags, file, offset));
}
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
