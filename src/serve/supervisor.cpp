#include "serve/supervisor.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace moracle::serve {

namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// 0: it is no whole number.
long long number(const std::string& text) {
  long long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

}  // namespace

Supervisor Supervisor::from_environment() {
  const std::string process = variable("WATCHDOG_PID");
  const bool ours = process.empty() || number(process) == getpid();
  return {variable("NOTIFY_SOCKET"), std::chrono::microseconds(ours ? number(variable("WATCHDOG_USEC")) : 0)};
}

Supervisor::Supervisor(std::string address, std::chrono::microseconds watchdog)
    : address_(std::move(address)), watchdog_(watchdog) {
  const bool named = address_.size() > 1 && (address_.front() == '/' || address_.front() == '@');
  if (!named || address_.size() >= sizeof(sockaddr_un::sun_path)) return;
  socket_ = FileDescriptor(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

void Supervisor::notify(std::string_view words) const {
  if (socket_.get() < 0) return;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, address_.data(), address_.size());
  if (address_.front() == '@') to.sun_path[0] = '\0';
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  // A supervisor that takes nothing is no reason to serve nobody.
  static_cast<void>(
      sendto(socket_.get(), words.data(), words.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&to), size));
}

void Supervisor::ready() {
  notify("READY=1\nSTATUS=serving");
}

void Supervisor::stopping() {
  notify("STOPPING=1\nSTATUS=finishing replies");
}

void Supervisor::live(bool healthy) {
  const auto now = std::chrono::steady_clock::now();
  if (watchdog_.count() <= 0 || !healthy || now < next_) return;
  next_ = now + watchdog_ / 2;
  notify("WATCHDOG=1");
}

}  // namespace moracle::serve
