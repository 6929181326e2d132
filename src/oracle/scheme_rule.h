// Whether one accepted pair of keys covers a scheme.
#pragma once

#include <cstdint>
#include <span>

#include "oracle/card.h"

namespace moracle {

[[nodiscard]] bool weight_matches(const SchemeRule& rule, std::span<const std::int32_t> group_sizes,
                                  const QuantKey& key);
[[nodiscard]] bool scheme_matches(const SchemeRule& rule, std::span<const std::int32_t> group_sizes,
                                  const Scheme& scheme);

}  // namespace moracle
