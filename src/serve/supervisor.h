// Notes to systemd about the service: datagrams to $NOTIFY_SOCKET, as sd_notify(3) says. The thread that serves uses
// it, and waits for no answer.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/files/file.h"

namespace moracle::serve {

class Supervisor {
 public:
  // The one that the environment names, if any; without one nothing is told.
  static Supervisor from_environment();
  // `address`: a path, or a name in the abstract space behind '@'; empty: nobody. `watchdog`: how often the supervisor
  // wants a sign of life; 0: never.
  Supervisor(std::string address, std::chrono::microseconds watchdog);

  void ready();
  void stopping();
  // A sign of life, no more often than twice in the wanted time. `healthy`: false: none, so that the supervisor acts.
  void live(bool healthy);

 private:
  void notify(std::string_view words) const;

  std::string address_;
  std::chrono::microseconds watchdog_;
  FileDescriptor socket_;
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace moracle::serve
