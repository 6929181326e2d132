#include "failures/failing_calls.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string_view>
#include <utility>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MORACLE_ASAN
#endif
#endif

namespace {

using moracle::test::Call;

// Constant initialization: malloc is called before any constructor runs.
constinit std::atomic<Call> armed{Call::none};
constinit std::atomic<std::int64_t> calls{0};
constinit std::atomic<std::int64_t> failing{0};
constinit std::atomic<bool> failing_for_good{false};
constinit std::atomic<bool> sparing_json_destructors{false};
constinit std::atomic<std::int64_t> blocks{0};
constinit thread_local bool spared = false;

bool in_json_destructor() {
  std::array<void*, 64> callers{};
  const int count = backtrace(callers.data(), static_cast<int>(callers.size()));
  return std::any_of(callers.begin(), callers.begin() + count, [](void* caller) {
    Dl_info info{};
    if (dladdr(caller, &info) == 0 || info.dli_sname == nullptr) return false;
    const std::string_view name(info.dli_sname);
    return name.find("10basic_json") != std::string_view::npos &&
           (name.find("7destroyE") != std::string_view::npos || name.ends_with("D1Ev") || name.ends_with("D2Ev"));
  });
}

// Stacks of callers that were seen, by their hashes, and the first call of each.
constexpr std::size_t kMostStacks = std::size_t{1} << 16U;
constinit std::atomic<bool> noting{false};
constinit std::atomic_flag note_taken;
constinit std::array<std::uint64_t, 2 * kMostStacks> seen_stacks{};  // open addressing; 0: free
constinit std::array<std::int64_t, kMostStacks> first_calls{};
constinit std::size_t stacks = 0;

// Takes no memory.
void note(std::int64_t number) {
  std::array<void*, 64> callers{};
  const int count = backtrace(callers.data(), static_cast<int>(callers.size()));
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a over addresses
  for (int i = 0; i < count; ++i) {
    hash = (hash ^ reinterpret_cast<std::uintptr_t>(callers[static_cast<std::size_t>(i)])) * 1099511628211U;
    hash ^= hash >> 32U;
  }
  hash |= 1U;
  while (note_taken.test_and_set(std::memory_order_acquire)) {
  }
  std::size_t at = hash % seen_stacks.size();
  while (seen_stacks[at] != 0 && seen_stacks[at] != hash) at = (at + 1) % seen_stacks.size();
  if (seen_stacks[at] == 0 && stacks < kMostStacks) {
    seen_stacks[at] = hash;
    first_calls[stacks++] = number;
  }
  note_taken.clear(std::memory_order_release);
}

bool fails(Call call) {
  if (armed.load(std::memory_order_relaxed) != call || spared) return false;
  const std::int64_t number = calls.fetch_add(1) + 1;
  if (noting.load(std::memory_order_relaxed)) note(number);
  const std::int64_t at = failing.load();
  if (at == 0 || number < at || (number > at && !failing_for_good.load())) return false;
  if (call != Call::allocate || !sparing_json_destructors.load() || !in_json_destructor()) return true;
  failing = number + 1;
  return false;
}

// -1, with the reason.
int refuse(int reason) {
  errno = reason;
  return -1;
}

constexpr std::array<std::pair<std::string_view, Call>, 7> kNames{{{"allocate", Call::allocate},
                                                                   {"open", Call::open},
                                                                   {"read", Call::read},
                                                                   {"map", Call::map},
                                                                   {"thread", Call::thread},
                                                                   {"accept", Call::accept},
                                                                   {"write", Call::write}}};

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

namespace moracle::test {

std::optional<Call> call_named(std::string_view name) {
  for (const auto& [known, call] : kNames)
    if (known == name) return call;
  return std::nullopt;
}

std::string_view name_of(Call call) {
  for (const auto& [name, known] : kNames)
    if (known == call) return name;
  return "none";
}

void arm(Call call, std::int64_t at, bool for_good) {
  calls = 0;
  failing = at;
  failing_for_good = for_good;
  armed = call;
}

void spare_this_thread() {
  spared = true;
}

void spare_json_destructors() {
  void* caller = nullptr;
  backtrace(&caller, 1);  // the first call allocates
  sparing_json_destructors = true;
}

std::int64_t disarm() {
  armed = Call::none;
  noting = false;
  return calls;
}

void note_callers() {
  void* caller = nullptr;
  backtrace(&caller, 1);  // the first call allocates
  seen_stacks.fill(0);
  stacks = 0;
  noting = true;
}

std::vector<std::int64_t> noted_calls() {
  std::vector<std::int64_t> noted(first_calls.begin(), first_calls.begin() + static_cast<std::ptrdiff_t>(stacks));
  std::sort(noted.begin(), noted.end());
  return noted;
}

std::int64_t live_blocks() {
  return blocks;
}

}  // namespace moracle::test

// The C library's own names for what is replaced here.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming,cert-dcl50-cpp): they are not ours to choose
#if defined(MORACLE_ASAN)

void* operator new(std::size_t size) {
  void* const at = fails(Call::allocate) ? nullptr : std::malloc(size);
  if (at == nullptr) throw std::bad_alloc();
  return at;
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto to = static_cast<std::size_t>(alignment);
  void* const at = fails(Call::allocate) ? nullptr : std::aligned_alloc(to, (size + to - 1) / to * to);
  if (at == nullptr) throw std::bad_alloc();
  return at;
}
void operator delete(void* at) noexcept {
  std::free(at);
}
void operator delete(void* at, std::size_t /*size*/) noexcept {
  std::free(at);
}
void operator delete(void* at, std::align_val_t /*alignment*/) noexcept {
  std::free(at);
}
void operator delete(void* at, std::size_t /*size*/, std::align_val_t /*alignment*/) noexcept {
  std::free(at);
}

// nlohmann::json 3.11 loses the elements of a list where a later one gets no memory.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:_json";
}

extern "C" int ___interceptor_pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

#else

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* at, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void* at);
}

namespace {

void* counted(void* at) {
  if (at != nullptr) blocks.fetch_add(1, std::memory_order_relaxed);
  return at;
}

bool out_of_memory() {
  if (!fails(Call::allocate)) return false;
  errno = ENOMEM;
  return true;
}

}  // namespace

extern "C" {
void* malloc(std::size_t size) {
  return out_of_memory() ? nullptr : counted(__libc_malloc(size));
}

void* calloc(std::size_t count, std::size_t size) {
  return out_of_memory() ? nullptr : counted(__libc_calloc(count, size));
}

void* realloc(void* at, std::size_t size) {
  if (out_of_memory()) return nullptr;
  void* const moved = __libc_realloc(at, size);
  if (at == nullptr) return counted(moved);
  if (moved == nullptr && size == 0) blocks.fetch_sub(1, std::memory_order_relaxed);
  return moved;
}

void* aligned_alloc(std::size_t alignment, std::size_t size) {
  return out_of_memory() ? nullptr : counted(__libc_memalign(alignment, size));
}

int posix_memalign(void** out, std::size_t alignment, std::size_t size) {
  if (out_of_memory()) return ENOMEM;
  *out = counted(__libc_memalign(alignment, size));
  return *out == nullptr ? ENOMEM : 0;
}

void free(void* at) {
  if (at != nullptr) blocks.fetch_sub(1, std::memory_order_relaxed);
  __libc_free(at);
}
}

#endif

extern "C" {
int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const int mode = va_arg(rest, int);
  va_end(rest);
  if (fails(Call::open)) return refuse(EMFILE);
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

int openat(int folder, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const int mode = va_arg(rest, int);
  va_end(rest);
  if (fails(Call::open)) return refuse(EMFILE);
  return static_cast<int>(syscall(SYS_openat, folder, path, flags, mode));
}

FILE* fopen(const char* path, const char* mode) {
  if (fails(Call::open)) return refuse(EMFILE), nullptr;
  static const auto kOpen = next<FILE* (*)(const char*, const char*)>("fopen");
  return kOpen(path, mode);
}

FILE* fopen64(const char* path, const char* mode) {
  return fopen(path, mode);
}

ssize_t read(int file, void* to, std::size_t size) {
  if (fails(Call::read)) return refuse(EIO);
  return syscall(SYS_read, file, to, size);
}

ssize_t pread(int file, void* to, std::size_t size, off_t offset) {
  if (fails(Call::read)) return refuse(EIO);
  return syscall(SYS_pread64, file, to, size, offset);
}

void* mmap(void* at, std::size_t size, int protection, int flags, int file, off_t offset) {
  if (fails(Call::map)) return refuse(ENOMEM), MAP_FAILED;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): what the system call returns is an address
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, size, protection, flags, file, offset));
}

int accept4(int socket, sockaddr* address, socklen_t* size, int flags) {
  if (fails(Call::accept)) return refuse(EMFILE);
  return static_cast<int>(syscall(SYS_accept4, socket, address, size, flags));
}

int accept(int socket, sockaddr* address, socklen_t* size) {
  return accept4(socket, address, size, 0);
}

ssize_t send(int socket, const void* from, std::size_t size, int flags) {
  if (fails(Call::write)) return refuse(ECONNRESET);
  return syscall(SYS_sendto, socket, from, size, flags, nullptr, 0);
}

ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  if (fails(Call::write)) return refuse(ECONNRESET);
  return syscall(SYS_sendmsg, socket, message, flags);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*), void* argument) {
  if (fails(Call::thread)) return EAGAIN;
#if defined(MORACLE_ASAN)
  return ___interceptor_pthread_create(thread, attributes, start, argument);
#else
  static const auto kCreate =
      next<int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  return kCreate(thread, attributes, start, argument);
#endif
}
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming,cert-dcl50-cpp)
