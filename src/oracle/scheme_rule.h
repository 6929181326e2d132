// Whether one accepted pair of keys covers a scheme.
#pragma once

#include <span>

#include "oracle/card.h"

namespace moracle {

// `code_bits`: see Problem::code_bits.
[[nodiscard]] bool scheme_matches(const SchemeRule& rule, std::span<const std::int32_t> group_sizes,
                                  const Scheme& scheme, std::int32_t code_bits);

}  // namespace moracle
