// State of one sequence, in blocks of 64 positions that a pool hands out as it grows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "kernels/args/state.h"
#include "model/state/ledger.h"

namespace moracle {

inline constexpr std::int64_t kBlockTokens = kKvBlock;

// Tokens of a prompt that one call takes on the host: it bounds the workspace and lets an interrupt act early.
inline constexpr std::int64_t kHostPrefillChunk = 512;
// Fewer leave a mixture's experts so few rows each that reading their weights takes as long as multiplying them.
inline constexpr std::int64_t kDevicePrefillChunk = 4096;

// What one layer keeps: bytes for each block of positions (keys and values, a latent, ...), and floats that do not
// grow with the sequence (a recurrent state).
struct LayerState {
  std::int64_t block_bytes = 0;
  std::int64_t fixed_floats = 0;
  std::int64_t window = 0;  // positions that a query sees, its own included; 0: all
};

// Where each layer's share lies inside a block and inside the fixed part. Layers of one window share a kind of blocks;
// the fixed parts of all layers are one more kind.
class StateLayout {
 public:
  struct Kind {
    std::int64_t window = 0;
    std::int64_t bytes = 0;  // of a block
  };
  struct Place {
    std::size_t kind = 0;
    std::int64_t offset = 0;  // bytes
  };
  // `prefill_chunk`: tokens of a prompt in one call, which decides how much windowed layers have at once.
  explicit StateLayout(const std::vector<LayerState>& layers, std::int64_t prefill_chunk = kHostPrefillChunk);

  [[nodiscard]] const std::vector<Kind>& kinds() const { return kinds_; }
  [[nodiscard]] std::size_t fixed_kind() const { return kinds_.size(); }
  [[nodiscard]] std::int64_t fixed_bytes() const { return fixed_bytes_; }
  // Of a kind, that a sequence of `length` positions has at once. Of windowed layers: those that a prompt in chunks
  // needs.
  [[nodiscard]] std::int64_t blocks(std::size_t kind, std::int64_t length) const;
  // As BlockLedger::make wants them.
  [[nodiscard]] std::vector<std::size_t> block_bytes() const;
  // Of a sequence of `length` positions, as it is allocated: whole blocks, and the fixed part twice.
  [[nodiscard]] std::size_t bytes(std::int64_t length) const;
  [[nodiscard]] const Place& place(std::size_t layer) const { return places_[layer]; }
  [[nodiscard]] std::int64_t fixed_offset(std::size_t layer) const { return fixed_offsets_[layer]; }  // floats
  [[nodiscard]] std::int64_t prefill_chunk() const { return prefill_chunk_; }

 private:
  std::vector<Kind> kinds_;
  std::vector<Place> places_;
  std::vector<std::int64_t> fixed_offsets_;
  std::int64_t fixed_bytes_ = 0;
  std::int64_t prefill_chunk_ = kHostPrefillChunk;
};

// A layer's share of all blocks of its kind, and of all blocks of fixed parts: addresses on the ledger's device.
[[nodiscard]] inline BlockMemory kv_blocks(const StateLayout& layout, const BlockLedger& ledger, std::size_t layer) {
  const StateLayout::Place& place = layout.place(layer);
  return {.memory = ledger.data(place.kind) + place.offset, .stride = ledger.stride(place.kind)};
}
[[nodiscard]] inline BlockMemory recurrent_blocks(const StateLayout& layout, const BlockLedger& ledger,
                                                  std::size_t layer) {
  const std::size_t kind = layout.fixed_kind();
  return {.memory = ledger.data(kind) + layout.fixed_offset(layer) * std::int64_t{sizeof(float)},
          .stride = ledger.stride(kind)};
}

// What the positions of one sequence left behind, freed with the object. Blocks are shared with forks and with stored
// prefixes, and copied before they are written where they are. Blocks that no later position sees go back to the
// ledger. Addresses are those of the ledger's device.
class SequenceState final {
 public:
  SequenceState(std::shared_ptr<const StateLayout> layout, std::shared_ptr<BlockLedger> ledger);
  SequenceState(const SequenceState&) = delete;
  SequenceState& operator=(const SequenceState&) = delete;
  ~SequenceState();

  [[nodiscard]] std::int64_t length() const { return length_; }  // tokens held
  // Another state that goes its own way from here. The two share all blocks until one of them writes.
  [[nodiscard]] std::unique_ptr<SequenceState> fork() const;
  // Takes the memory for `length` positions in all. Errors: "memory.state"; the held positions are then as before.
  Result<> reserve(std::int64_t length);
  // Forgets all positions from `length` on. Errors: "state.truncate" where what the shorter sequence needs is gone: a
  // recurrent state of other than 0 positions, or positions that left a window. Both are there at the checkpoint.
  Result<> truncate(std::int64_t length);

  // Keeps what truncate() to the present length will need, until the next checkpoint, a shorter length or
  // drop_checkpoint(): windowed blocks, and the recurrent state, which costs one more block once a call goes on. A span
  // of drafts is run behind a checkpoint; where some are refused, the state goes back to it and the accepted ones are
  // run again, or, where no layer is recurrent, it is truncated behind them.
  void checkpoint();
  void drop_checkpoint();
  [[nodiscard]] std::optional<std::int64_t> checkpoint_length() const { return checkpoint_; }

  // The end of a call that worked: its positions are held, and next_fixed() becomes fixed().
  void commit(std::int64_t length);
  // The end of a call whose device failed: what reserve() had copied or cleared for it may never have been written, so
  // the state refers again to what it was copied from.
  void abandon();

  // The layer's share of all blocks of its kind, and of one that is this sequence's.
  [[nodiscard]] BlockMemory blocks(std::size_t layer) const { return kv_blocks(*layout_, *ledger_, layer); }
  [[nodiscard]] std::byte* block(std::size_t layer, std::int64_t index) const {
    return blocks(layer).block(table(layout_->place(layer).kind)[static_cast<std::size_t>(index)]);
  }
  // Blocks of a kind, in order, until the next reserve(); kNoBlock: gone. A kind without bytes has none.
  [[nodiscard]] std::span<const BlockId> table(std::size_t kind) const { return tables_[kind]; }
  // What the held positions left behind; zeros where there are none. A call reads it and writes all of its own into
  // next_fixed(), so that one that fails has changed nothing. Both after reserve().
  [[nodiscard]] const float* fixed(std::size_t layer) const { return floats(fixed_, layer); }
  [[nodiscard]] float* next_fixed(std::size_t layer) const { return floats(next_fixed_, layer); }
  [[nodiscard]] BlockId fixed_block() const { return fixed_; }
  [[nodiscard]] BlockId next_fixed_block() const { return next_fixed_; }
  [[nodiscard]] const StateLayout* layout() const { return layout_.get(); }
  [[nodiscard]] const BlockLedger* ledger() const { return ledger_.get(); }
  // From here on calls add to [layers, experts] how many of the sequence's tokens each expert took; null: nowhere.
  // Models without experts add nothing.
  void count_routing(std::uint32_t* experts) { routing_ = experts; }
  [[nodiscard]] std::uint32_t* routing() const { return routing_; }

 private:
  friend class PrefixStore;

  // A block that was copied for a call, and what it was copied from.
  struct Copied {
    std::size_t kind = 0;
    std::size_t index = 0;  // in the table
    BlockId from = kNoBlock;
  };

  [[nodiscard]] float* floats(BlockId fixed, std::size_t layer) const {
    return reinterpret_cast<float*>(ledger_->block(layout_->fixed_kind(), fixed)) + layout_->fixed_offset(layer);
  }
  Error no_memory(std::int64_t length);
  // The first block of a kind that a query behind `length` positions sees.
  [[nodiscard]] std::size_t first_seen(std::size_t kind, std::int64_t length) const;
  bool own_last_block(std::size_t kind);
  bool own_fixed();
  void release(std::size_t kind, BlockId& block);
  void release_fixed(BlockId& block) { release(layout_->fixed_kind(), block); }
  // Forgets what copied_ were copied from.
  void keep_copies();
  // Of all kinds, from the block with this index on; 0: the fixed part, too.
  void drop(std::size_t first);

  std::shared_ptr<const StateLayout> layout_;
  std::shared_ptr<BlockLedger> ledger_;
  std::uint32_t* routing_ = nullptr;
  std::vector<std::vector<BlockId>> tables_;  // by kind; kNoBlock: gone
  std::vector<Copied> copied_;                // since the last call, at most one of each kind
  BlockId fixed_ = kNoBlock;                  // kNoBlock: zeros
  BlockId next_fixed_ = kNoBlock;
  BlockId checkpoint_fixed_ = kNoBlock;
  std::optional<std::int64_t> checkpoint_;
  std::int64_t length_ = 0;
};

}  // namespace moracle
