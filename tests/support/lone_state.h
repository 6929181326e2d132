// A sequence state with a pool of its own.
#pragma once

#include <memory>
#include <utility>

#include "model/state/state.h"

namespace moracle::test {

inline Result<std::unique_ptr<SequenceState>> lone_state(std::shared_ptr<const StateLayout> layout) {
  constexpr std::size_t kBudget = std::size_t{64} << 20;
  MORACLE_ASSIGN(auto pool, BlockPool::make(layout->block_bytes(), kBudget));
  return std::make_unique<SequenceState>(std::move(layout), std::move(pool));
}

}  // namespace moracle::test
