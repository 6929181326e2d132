// Who is told which experts a layer chose.
#pragma once

#include <cstdint>
#include <span>

namespace moracle {

class RoutingTally {
 public:
  virtual ~RoutingTally() = default;
  // `ids` [tokens, top_k] of a call; -1: no expert.
  virtual void count(std::int64_t top_k, std::span<const std::int32_t> ids) = 0;
};

}  // namespace moracle
