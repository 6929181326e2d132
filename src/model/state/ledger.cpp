#include "model/state/ledger.h"

namespace moracle {

BlockLedger::BlockLedger(std::unique_ptr<BlockArena> arena, const std::vector<std::size_t>& block_bytes,
                         std::size_t budget, std::shared_ptr<Stream> stream)
    : stream_(std::move(stream)), arena_(std::move(arena)), block_bytes_(block_bytes), budget_(budget) {
  references_.resize(block_bytes.size());
  for (std::size_t kind = 0; kind < block_bytes.size(); ++kind) references_[kind].reserve(arena_->capacity(kind));
}

Result<std::shared_ptr<BlockLedger>> BlockLedger::make(const std::vector<std::size_t>& block_bytes, std::size_t budget,
                                                       std::shared_ptr<Stream> stream) {
  MORACLE_ASSIGN(auto arena, PageArena::make(block_bytes, budget));
  return std::shared_ptr<BlockLedger>(new BlockLedger(std::move(arena), block_bytes, budget, std::move(stream)));
}

Result<std::shared_ptr<BlockLedger>> BlockLedger::make(const Device& device,
                                                       const std::vector<std::size_t>& block_bytes, std::size_t budget,
                                                       std::shared_ptr<Stream> stream) {
  MORACLE_ASSIGN(auto arena, SlabArena::make(device, block_bytes, budget));
  return std::shared_ptr<BlockLedger>(new BlockLedger(std::move(arena), block_bytes, budget, std::move(stream)));
}

std::optional<BlockId> BlockLedger::take(std::size_t kind) {
  const std::optional<BlockId> block = arena_->take(kind, used_);
  if (!block) return block;
  const std::size_t index = arena_->index(kind, *block);
  if (index >= references_[kind].size()) references_[kind].resize(index + 1);
  references_[kind][index] = 1;
  used_ += footprint(kind);
  return block;
}

std::optional<BlockId> BlockLedger::take_copy(std::size_t kind, BlockId from) {
  const std::optional<BlockId> own = take(kind);
  if (own) stream_->on_device(block(kind, *own), block(kind, from), block_bytes_[kind]);
  return own;
}

std::optional<BlockId> BlockLedger::take_zeros(std::size_t kind) {
  const std::optional<BlockId> own = take(kind);
  if (own) stream_->fill(block(kind, *own), 0, block_bytes_[kind]);
  return own;
}

void BlockLedger::release(std::size_t kind, BlockId block) {
  if (--references(kind, block) > 0) return;
  arena_->give_back(kind, block);
  used_ -= footprint(kind);
}

}  // namespace moracle
