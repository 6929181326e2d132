#include "model/state/state.h"

#include <cstring>

#include "base/checked.h"

namespace moracle {

namespace {

// Places for the blocks of 256 Ki positions, so that the list itself does not grow while a sequence does.
constexpr std::size_t kListedBlocks = 4096;

Result<PageBuffer> copy_of(const PageBuffer& from) {
  MORACLE_ASSIGN(PageBuffer to, PageBuffer::allocate(from.size()));
  if (from.size() != 0) std::memcpy(to.data(), from.data(), from.size());
  return to;
}

std::size_t bytes_of(std::int64_t floats) {
  return static_cast<std::size_t>(floats) * sizeof(float);
}

}  // namespace

StateLayout::StateLayout(const std::vector<LayerState>& layers) {
  // Each share starts on a cache line.
  constexpr std::int64_t kLine = 16;
  for (const LayerState& layer : layers) {
    offsets_.push_back({block_floats_, fixed_floats_});
    block_floats_ += round_up(layer.block_floats, kLine);
    fixed_floats_ += round_up(layer.fixed_floats, kLine);
  }
}

std::size_t StateLayout::bytes(std::int64_t length) const {
  return bytes_of(ceil_div(length, kBlockTokens) * block_floats_ + 2 * fixed_floats_);
}

Result<std::unique_ptr<PagedState>> PagedState::make(std::shared_ptr<const StateLayout> layout) {
  std::unique_ptr<PagedState> state(new PagedState(std::move(layout)));
  state->blocks_.reserve(kListedBlocks);
  const std::size_t fixed_bytes = bytes_of(state->layout_->fixed_floats());
  MORACLE_ASSIGN(state->fixed_, PageBuffer::allocate(fixed_bytes));
  MORACLE_ASSIGN(state->next_fixed_, PageBuffer::allocate(fixed_bytes));
  return state;
}

std::unique_ptr<SequenceState> PagedState::fork() const {
  std::unique_ptr<PagedState> copy(new PagedState(layout_));
  auto fixed = copy_of(fixed_);
  if (!fixed.ok()) return nullptr;
  copy->fixed_ = std::move(*fixed);
  auto next_fixed = PageBuffer::allocate(fixed_.size());
  if (!next_fixed.ok()) return nullptr;
  copy->next_fixed_ = std::move(*next_fixed);
  copy->blocks_.reserve(kListedBlocks);
  // Blocks that were reserved but hold nothing yet are not worth a copy.
  const std::int64_t used = ceil_div(length_, kBlockTokens);
  for (std::int64_t i = 0; i < used; ++i) {
    auto block = copy_of(blocks_[static_cast<std::size_t>(i)]);
    if (!block.ok()) return nullptr;
    copy->blocks_.push_back(std::move(*block));
  }
  copy->length_ = length_;
  return copy;
}

Result<> PagedState::reserve(std::int64_t length) {
  const auto wanted = static_cast<std::size_t>(ceil_div(length, kBlockTokens));
  const std::size_t before = blocks_.size();
  while (blocks_.size() < wanted) {
    auto block = PageBuffer::allocate(bytes_of(layout_->block_floats()));
    if (!block.ok()) {
      blocks_.resize(before);
      return std::move(block).error();
    }
    blocks_.push_back(std::move(*block));
  }
  return Ok{};
}

}  // namespace moracle
