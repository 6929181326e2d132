#include "api/edge/turns.h"

#include <string>

#include "api/edge/call.h"

namespace moracle::api {

Result<> Turns::check_not_mine() const {
  if (!mutex_.held_here()) return Ok{};
  return wrong_argument("nested", what_, "a call outside of " + std::string(outside_), "a call from within");
}

Result<Turns::Turn> Turns::take() {
  MORACLE_TRY(check_not_mine());
  return Turn(mutex_);
}

}  // namespace moracle::api
