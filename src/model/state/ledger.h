// One budget of memory for everything that sequences keep: which blocks there are, and who refers to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "model/state/arena.h"

namespace moracle {

// Blocks of a few kinds, counted by reference. Ids and counts are the host's, the blocks are memory of the stream's
// device. Contents are copied and cleared on the stream, in the order of the calls; a failure is the stream's. Used by
// one thread at a time.
class BlockLedger {
 public:
  // Over pages of the host. `block_bytes`: of each kind of block; those of 0 bytes are never taken. Errors:
  // "memory.allocate".
  static Result<std::shared_ptr<BlockLedger>> make(const std::vector<std::size_t>& block_bytes, std::size_t budget,
                                                   std::shared_ptr<Stream> stream);
  // Over one buffer of the stream's device. Errors: those of Device::allocate.
  static Result<std::shared_ptr<BlockLedger>> make(const Device& device, const std::vector<std::size_t>& block_bytes,
                                                   std::size_t budget, std::shared_ptr<Stream> stream);

  // A block that one owner refers to; its contents are left from earlier ones. Empty: the budget is spent.
  [[nodiscard]] std::optional<BlockId> take(std::size_t kind);
  // The same, with the contents of another block, or with zeros.
  [[nodiscard]] std::optional<BlockId> take_copy(std::size_t kind, BlockId from);
  [[nodiscard]] std::optional<BlockId> take_zeros(std::size_t kind);
  // Whether a copy may turn out to have failed when the stream is waited for.
  [[nodiscard]] bool copies_can_fail() const { return !stream_->on_host(); }
  void share(std::size_t kind, BlockId block) { ++references(kind, block); }
  void release(std::size_t kind, BlockId block);
  [[nodiscard]] bool shared(std::size_t kind, BlockId block) const {
    return references_[kind][arena_->index(kind, block)] > 1;
  }

  // Of block 0, and from it to the next; addresses on the device.
  [[nodiscard]] std::byte* data(std::size_t kind) const { return arena_->data(kind); }
  [[nodiscard]] std::size_t stride(std::size_t kind) const { return arena_->stride(kind); }
  [[nodiscard]] std::byte* block(std::size_t kind, BlockId id) const { return data(kind) + id * stride(kind); }
  [[nodiscard]] std::size_t kinds() const { return block_bytes_.size(); }
  // Of a block: what its owner asked for, and what it takes of the budget.
  [[nodiscard]] std::size_t block_bytes(std::size_t kind) const { return block_bytes_[kind]; }
  [[nodiscard]] std::size_t footprint(std::size_t kind) const { return arena_->footprint(kind); }

  [[nodiscard]] std::size_t budget() const { return budget_; }
  [[nodiscard]] std::size_t used() const { return used_; }                     // bytes of blocks with an owner
  [[nodiscard]] std::size_t committed() const { return arena_->committed(); }  // bytes that are memory now

 private:
  BlockLedger(std::unique_ptr<BlockArena> arena, const std::vector<std::size_t>& block_bytes, std::size_t budget,
              std::shared_ptr<Stream> stream);
  [[nodiscard]] std::uint32_t& references(std::size_t kind, BlockId block) {
    return references_[kind][arena_->index(kind, block)];
  }

  std::shared_ptr<Stream> stream_;
  std::unique_ptr<BlockArena> arena_;
  std::vector<std::size_t> block_bytes_;
  std::vector<std::vector<std::uint32_t>> references_;  // by kind and the arena's index
  std::size_t budget_ = 0;
  std::size_t used_ = 0;
};

}  // namespace moracle
