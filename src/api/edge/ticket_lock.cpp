#include "api/edge/ticket_lock.h"

#include <string>

#include "api/edge/call.h"

namespace moracle::api {

Result<> TicketLock::check_not_held() const {
  if (!mutex_.held_here()) return Ok{};
  return wrong_argument("nested", what_, "a call outside of " + std::string(outside_), "a call from within");
}

Result<TicketLock::Turn> TicketLock::acquire() {
  MORACLE_TRY(check_not_held());
  return Turn(mutex_);
}

}  // namespace moracle::api
