// What the blocks of one forward call share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/phase_clock.h"
#include "kernels/kernel.h"
#include "kernels/ops.h"
#include "model/state/state.h"
#include "moe/moe_layer.h"

namespace moracle {

// The sequences of a batch: which tokens are whose, and where their states are. Arrays are memory of the stream's
// device; a span of no tokens is skipped.
struct BatchState {
  const StateLayout* layout = nullptr;
  const BlockLedger* ledger = nullptr;
  std::span<const KvSpan* const> kv{};       // by kind of blocks: [count]
  const RecurrentSpan* recurrent = nullptr;  // [count]
  std::int64_t count = 0;

  // A layer's share of the blocks of all sequences, and the spans with the tables of its kind.
  [[nodiscard]] BlockMemory kv_blocks(std::size_t layer) const { return moracle::kv_blocks(*layout, *ledger, layer); }
  [[nodiscard]] const KvSpan* kv_spans(std::size_t layer) const { return kv[layout->place(layer).kind]; }
  [[nodiscard]] BlockMemory recurrent_blocks(std::size_t layer) const {
    return moracle::recurrent_blocks(*layout, *ledger, layer);
  }
};

// Blocks build the arguments of operations and kernels; what computes is theirs.
struct ForwardContext {
  Stream& stream;
  const Ops& ops;
  std::span<std::byte> workspace;
  std::int64_t tokens = 0;
  const std::int32_t* ids = nullptr;
  BatchState state{};
  std::span<const RopeTable> ropes{};    // of every token of the batch
  std::int32_t* selected = nullptr;      // [tokens, Mixer::selected()], where a layer chooses positions
  float* late = nullptr;                 // [tokens, hidden], where a layer has what is added behind the next one
  const DeviceStatus* status = nullptr;  // null: nobody asks
  PhaseClock* clock = nullptr;           // the same
  const ExpertCounts* counts = nullptr;  // the same

  void enter(Phase phase) const {
    if (clock != nullptr) clock->enter(phase);
  }
  [[nodiscard]] RunContext run_context(std::span<std::byte> rest) const { return {stream, rest, status}; }
  [[nodiscard]] int threads() const { return run_context({}).threads(); }
};

}  // namespace moracle
