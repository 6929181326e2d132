#include "checkpoint/mapping_guard.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <mutex>

namespace moracle {

namespace {

constexpr std::size_t kMappings = 8192;

// Lock-free, because the handler reads it. `begin` is 0 in a free slot; it is written last when a slot is taken and
// first when it is given back.
struct Slot {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::size_t> size{0};
  std::atomic<bool> torn{false};
};
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

std::array<Slot, kMappings> slots;
std::atomic<std::size_t> slots_in_use{0};  // slots at or above it have never been taken
std::mutex slots_mutex;                    // among takers, never held by the handler
struct sigaction previous_action;
std::uintptr_t page_size = 4096;

// Replaces everything from the page of `address` to the end of the mapping by zeros: one signal, not one per page. A
// plain system call, since sanitizers wrap mmap() in code that a signal handler must not run.
bool cover_with_zeros(std::uintptr_t address, std::uintptr_t end) {
  const std::uintptr_t page = address & ~(page_size - 1);
  const long mapped =
      syscall(SYS_mmap, page, end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0L);
  return mapped == static_cast<long>(page);
}

bool repair(std::uintptr_t address) {
  const std::size_t count = slots_in_use.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < count; ++i) {
    Slot& slot = slots[i];
    const std::uintptr_t begin = slot.begin.load(std::memory_order_acquire);
    const std::size_t size = slot.size.load(std::memory_order_acquire);
    if (begin == 0 || address < begin || address - begin >= size) continue;
    if (slot.begin.load(std::memory_order_acquire) != begin) continue;  // given back meanwhile
    if (!cover_with_zeros(address, begin + size)) return false;
    slot.torn.store(true, std::memory_order_release);
    return true;
  }
  return false;
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const bool from_memory = info->si_code > 0;  // 0 and below: sent by a process
  if (from_memory && repair(reinterpret_cast<std::uintptr_t>(info->si_addr))) {
    errno = saved_errno;
    return;
  }
  errno = saved_errno;
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
    previous_action.sa_sigaction(signal, info, context);
  } else if (previous_action.sa_handler == SIG_DFL) {
    // Blocked until this handler returns, then it ends the process as it would have without us.
    sigaction(signal, &previous_action, nullptr);
    raise(signal);
  } else if (previous_action.sa_handler != SIG_IGN) {
    previous_action.sa_handler(signal);
  } else if (from_memory) {
    // Ignoring a fault would repeat it for ever; the system does not allow that either.
    struct sigaction fatal{};
    fatal.sa_handler = SIG_DFL;
    sigaction(signal, &fatal, nullptr);
  }
}

void install_handler() {
  page_size = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  struct sigaction action{};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  // Asked first: the handler may run between its installation and the answer.
  sigaction(SIGBUS, nullptr, &previous_action);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace

MappingGuard::MappingGuard(const void* address, std::size_t size) {
  static std::once_flag installed;
  std::call_once(installed, install_handler);
  const std::lock_guard lock(slots_mutex);
  for (std::size_t i = 0; i < kMappings; ++i) {
    if (slots[i].begin.load(std::memory_order_relaxed) != 0) continue;
    slots[i].torn.store(false, std::memory_order_relaxed);
    slots[i].size.store(size, std::memory_order_release);
    slots[i].begin.store(reinterpret_cast<std::uintptr_t>(address), std::memory_order_release);
    if (i >= slots_in_use.load(std::memory_order_relaxed)) slots_in_use.store(i + 1, std::memory_order_release);
    slot_ = static_cast<int>(i);
    return;
  }
}

MappingGuard::~MappingGuard() {
  if (slot_ < 0) return;
  slots[static_cast<std::size_t>(slot_)].begin.store(0, std::memory_order_release);
}

bool MappingGuard::torn() const {
  return slot_ >= 0 && slots[static_cast<std::size_t>(slot_)].torn.load(std::memory_order_acquire);
}

}  // namespace moracle
