// The spans of a batch as the blocks of a model are given them, in memory of the host.
#pragma once

#include <cstdint>
#include <vector>

#include "model/blocks/context.h"
#include "model/state/state.h"

namespace moracle::test {

class HostBatch {
 public:
  // The next `count` tokens continue the state, which has room for them.
  void add(const SequenceState& state, std::int64_t count) {
    layout_ = state.layout();
    ledger_ = state.ledger();
    kv_.resize(layout_->kinds().size());
    for (std::size_t kind = 0; kind < kv_.size(); ++kind) {
      kv_[kind].push_back(
          {.begin = tokens_, .count = count, .start = state.length(), .table = state.table(kind).data()});
    }
    recurrent_.push_back(
        {.begin = tokens_, .count = count, .before = state.fixed_block(), .after = state.next_fixed_block()});
    tokens_ += count;
  }
  [[nodiscard]] std::int64_t tokens() const { return tokens_; }
  // Until the next add().
  [[nodiscard]] BatchState view() {
    by_kind_.clear();
    for (const auto& spans : kv_) by_kind_.push_back(spans.data());
    return {.layout = layout_,
            .ledger = ledger_,
            .kv = by_kind_,
            .recurrent = recurrent_.data(),
            .count = std::ssize(recurrent_)};
  }

 private:
  const StateLayout* layout_ = nullptr;
  const BlockLedger* ledger_ = nullptr;
  std::vector<std::vector<KvSpan>> kv_;
  std::vector<const KvSpan*> by_kind_;
  std::vector<RecurrentSpan> recurrent_;
  std::int64_t tokens_ = 0;
};

}  // namespace moracle::test
