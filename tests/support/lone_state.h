// A sequence state with a ledger of its own, over memory of the host.
#pragma once

#include <memory>
#include <utility>

#include "base/thread_pool.h"
#include "model/state/state.h"

namespace moracle::test {

inline std::shared_ptr<Stream> host_stream() {
  static ThreadPool pool(1);
  return std::make_shared<Stream>(pool);
}

inline Result<std::unique_ptr<SequenceState>> lone_state(std::shared_ptr<const StateLayout> layout) {
  constexpr std::size_t kBudget = std::size_t{64} << 20;
  MORACLE_ASSIGN(auto ledger, BlockLedger::make(layout->block_bytes(), kBudget, host_stream()));
  return std::make_unique<SequenceState>(std::move(layout), std::move(ledger));
}

}  // namespace moracle::test
