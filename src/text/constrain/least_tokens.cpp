#include "text/constrain/least_tokens.h"

#include <cstddef>

namespace moracle {

void LeastTokens::narrow(std::span<std::uint32_t> mask) const {
  constexpr std::size_t kWordBits = 32;
  if (allows_all()) return;
  for (const std::int32_t id : ends_) {
    const auto bit = static_cast<std::size_t>(id);
    if (id >= 0 && bit / kWordBits < mask.size()) mask[bit / kWordBits] &= ~(std::uint32_t{1} << (bit % kWordBits));
  }
}

}  // namespace moracle
