// A lock of the C interface, held while the host's own code may run: a callback, or a host's parallel_for.
#pragma once

#include <mutex>
#include <string_view>

#include "base/fair_mutex.h"
#include "base/result.h"

namespace moracle::api {

class TicketLock {
 public:
  using Turn = std::unique_lock<FairMutex>;
  // `what`: the argument whose calls take turns; `outside`: what such a call has to be outside of.
  TicketLock(std::string_view what, std::string_view outside) : what_(what), outside_(outside) {}

  // Waits for its turn, in the order of calls. Error: "argument.nested" of a thread that has it, and would wait for
  // itself.
  [[nodiscard]] Result<Turn> acquire();
  // The same error, for a call that waits for another thread's turn.
  [[nodiscard]] Result<> check_not_held() const;
  [[nodiscard]] FairMutex& mutex() { return mutex_; }

 private:
  std::string_view what_, outside_;
  FairMutex mutex_;
};

}  // namespace moracle::api
