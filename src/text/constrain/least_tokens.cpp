#include "text/constrain/least_tokens.h"

#include "text/constrain/token_mask.h"

namespace moracle {

void LeastTokens::narrow(std::span<std::uint32_t> mask) const {
  if (allows_all()) return;
  for (const std::int32_t id : ends_) set_in_mask(mask, id, false);
}

}  // namespace moracle
