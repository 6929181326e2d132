#include "cli/interrupt.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <new>

namespace moracle::cli {

namespace {

std::atomic<int> pending{0};
std::atomic<bool> typing{false};
static_assert(std::atomic<int>::is_always_lock_free, "set from a signal handler");

void note_signal(int signal) {
  if (pending.exchange(signal) != 0 && !typing.load()) _exit(128 + signal);
}

// Destructors of nlohmann::json allocate.
[[noreturn]] void end_for_want_of_memory() {
  if (std::current_exception() == nullptr) std::abort();
  try {
    throw;
  } catch (const std::bad_alloc&) {
    (void)!write(STDERR_FILENO, kOutOfMemoryLine.data(), kOutOfMemoryLine.size());
    _exit(1);
  } catch (...) {
    std::abort();
  }
}

}  // namespace

void prepare_process() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    const int opened = open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
    if (opened >= 0 && opened != fd) {
      dup2(opened, fd);
      close(opened);
    }
  }
  struct sigaction action = {};
  sigemptyset(&action.sa_mask);
  action.sa_handler = note_signal;  // without SA_RESTART, so that a waiting read returns
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
  std::set_terminate(end_for_want_of_memory);
}

bool interrupted() {
  return pending.load(std::memory_order_relaxed) != 0;
}

int interrupt_exit_code() {
  return 128 + pending.load(std::memory_order_relaxed);
}

bool asked_to_end() {
  return pending.load(std::memory_order_relaxed) == SIGTERM;
}

void clear_interrupt() {
  pending.store(0, std::memory_order_relaxed);
}

WhileTyping::WhileTyping() {
  typing.store(true);
}
WhileTyping::~WhileTyping() {
  typing.store(false);
}

}  // namespace moracle::cli
