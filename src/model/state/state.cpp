#include "model/state/state.h"

#include <algorithm>
#include <string>

#include "base/checked.h"
#include "base/generic/count.h"

namespace moracle {

namespace {

// Places for the blocks of 256 Ki positions, so that the list itself does not grow while a sequence does.
constexpr std::size_t kListedBlocks = 4096;

}  // namespace

StateLayout::StateLayout(const std::vector<LayerState>& layers, std::int64_t prefill_chunk)
    : prefill_chunk_(prefill_chunk) {
  constexpr std::int64_t kLine = 64;  // bytes: each share starts on a cache line
  for (const LayerState& layer : layers) {
    auto kind = std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& k) { return k.window == layer.window; });
    if (kind == kinds_.end()) kind = kinds_.insert(kinds_.end(), {.window = layer.window});
    places_.push_back({.kind = count(kind - kinds_.begin()), .offset = kind->bytes});
    kind->bytes += round_up(layer.block_bytes, kLine);
    fixed_offsets_.push_back(fixed_bytes_ / std::int64_t{sizeof(float)});
    fixed_bytes_ += round_up(layer.fixed_floats * std::int64_t{sizeof(float)}, kLine);
  }
}

std::vector<std::size_t> StateLayout::block_bytes() const {
  std::vector<std::size_t> bytes;
  for (const Kind& kind : kinds_) bytes.push_back(count(kind.bytes));
  bytes.push_back(count(fixed_bytes_));
  return bytes;
}

std::int64_t StateLayout::blocks(std::size_t kind, std::int64_t length) const {
  const std::int64_t all = ceil_div(length, kBlockTokens);
  const std::int64_t window = kinds_[kind].window;
  if (window == 0) return all;
  return std::min(all, ceil_div(window, kBlockTokens) + 1 + prefill_chunk_ / kBlockTokens);
}

std::size_t StateLayout::bytes(std::int64_t length) const {
  std::int64_t bytes = 2 * fixed_bytes_;
  for (std::size_t kind = 0; kind < kinds_.size(); ++kind) bytes += blocks(kind, length) * kinds_[kind].bytes;
  return count(bytes);
}

SequenceState::SequenceState(std::shared_ptr<const StateLayout> layout, std::shared_ptr<BlockLedger> ledger)
    : layout_(std::move(layout)), ledger_(std::move(ledger)), tables_(layout_->kinds().size()) {
  for (auto& table : tables_) table.reserve(kListedBlocks);
  copied_.reserve(tables_.size());
}

SequenceState::~SequenceState() {
  drop(0);
  drop_checkpoint();
}

std::unique_ptr<SequenceState> SequenceState::fork() const {
  auto copy = std::make_unique<SequenceState>(layout_, ledger_);
  // Blocks that were reserved but hold nothing yet are not worth sharing.
  const std::size_t used = count(ceil_div(length_, kBlockTokens));
  for (std::size_t kind = 0; kind < tables_.size(); ++kind) {
    for (std::size_t i = 0; i < std::min(used, tables_[kind].size()); ++i) {
      const BlockId block = tables_[kind][i];
      if (block != kNoBlock) ledger_->share(kind, block);
      copy->tables_[kind].push_back(block);
    }
  }
  if (fixed_ != kNoBlock) ledger_->share(layout_->fixed_kind(), fixed_);
  copy->fixed_ = fixed_;
  copy->length_ = length_;
  return copy;
}

Error SequenceState::no_memory(std::int64_t length) {
  drop(count(ceil_div(length_, kBlockTokens)));
  abandon();
  return Error{.code = "memory.state",
               .wanted = "room for " + std::to_string(length) + " positions in the " +
                         std::to_string(ledger_->budget()) + " bytes for keys, values and recurrent states",
               .found = std::to_string(ledger_->used()) + " bytes that are taken",
               .advice = "run fewer or shorter sequences, or keep keys and values in fewer bytes (--kv)"};
}

void SequenceState::release(std::size_t kind, BlockId& block) {
  if (block != kNoBlock) ledger_->release(kind, block);
  block = kNoBlock;
}

void SequenceState::keep_copies() {
  for (Copied& copied : copied_) release(copied.kind, copied.from);
  copied_.clear();
}

void SequenceState::abandon() {
  for (const Copied& copied : copied_) {
    BlockId& block = tables_[copied.kind][copied.index];
    release(copied.kind, block);
    block = copied.from;
  }
  copied_.clear();
  if (length_ == 0) release_fixed(fixed_);
}

// The block that the next position goes to is written, so nobody else may see it.
bool SequenceState::own_last_block(std::size_t kind) {
  const std::size_t index = count(length_ / kBlockTokens);
  if (length_ % kBlockTokens == 0 || index >= tables_[kind].size()) return true;
  BlockId& block = tables_[kind][index];
  if (!ledger_->shared(kind, block)) return true;
  const auto own = ledger_->take_copy(kind, block);
  if (!own) return false;
  if (ledger_->copies_can_fail()) {
    copied_.push_back({.kind = kind, .index = index, .from = block});
  } else {
    release(kind, block);
  }
  block = *own;
  return true;
}

bool SequenceState::own_fixed() {
  const std::size_t kind = layout_->fixed_kind();
  if (layout_->fixed_bytes() == 0) return true;
  if (next_fixed_ == kNoBlock) {
    const auto next = ledger_->take(kind);
    if (!next) return false;
    next_fixed_ = *next;
  }
  if (fixed_ == kNoBlock) {
    const auto zeros = ledger_->take_zeros(kind);
    if (!zeros) return false;
    fixed_ = *zeros;
  }
  return true;
}

Result<> SequenceState::reserve(std::int64_t length) {
  const auto wanted = count(ceil_div(length, kBlockTokens));
  for (std::size_t kind = 0; kind < tables_.size(); ++kind) {
    if (layout_->kinds()[kind].bytes == 0) continue;
    if (!own_last_block(kind)) return no_memory(length);
    while (tables_[kind].size() < wanted) {
      const auto block = ledger_->take(kind);
      if (!block) return no_memory(length);
      tables_[kind].push_back(*block);
    }
  }
  if (!own_fixed()) return no_memory(length);
  return Ok{};
}

std::size_t SequenceState::first_seen(std::size_t kind, std::int64_t length) const {
  const std::int64_t window = layout_->kinds()[kind].window;
  return window == 0 ? 0 : count(std::max<std::int64_t>(0, length - window + 1) / kBlockTokens);
}

void SequenceState::commit(std::int64_t length) {
  keep_copies();
  length_ = length;
  std::swap(fixed_, next_fixed_);
  if (next_fixed_ != kNoBlock && ledger_->shared(layout_->fixed_kind(), next_fixed_)) release_fixed(next_fixed_);
  const std::int64_t least = std::min(length, checkpoint_.value_or(length));
  for (std::size_t kind = 0; kind < tables_.size(); ++kind) {
    if (layout_->kinds()[kind].window == 0) continue;
    auto& table = tables_[kind];
    // Those before the last one that is gone are gone, too.
    for (std::size_t i = std::min(first_seen(kind, least), table.size()); i > 0 && table[i - 1] != kNoBlock; --i) {
      release(kind, table[i - 1]);
    }
  }
}

void SequenceState::checkpoint() {
  drop_checkpoint();
  checkpoint_ = length_;
  checkpoint_fixed_ = fixed_;
  if (fixed_ != kNoBlock) ledger_->share(layout_->fixed_kind(), fixed_);
}

void SequenceState::drop_checkpoint() {
  checkpoint_.reset();
  release_fixed(checkpoint_fixed_);
}

Result<> SequenceState::truncate(std::int64_t length) {
  const auto refused = [&](std::string found) {
    return Error{.code = "state.truncate",
                 .wanted = "a state of at least " + std::to_string(length) + " positions that can go back to them",
                 .found = std::move(found)};
  };
  if (length < 0 || length > length_) return refused(std::to_string(length_) + " positions");
  if (length == length_) return Ok{};
  if (length > 0 && layout_->fixed_bytes() > 0 && checkpoint_ != length) {
    return refused("a recurrent state, which only goes on");
  }
  for (std::size_t kind = 0; kind < tables_.size() && length > 0; ++kind) {
    const std::size_t seen = first_seen(kind, length);
    if (seen < tables_[kind].size() && tables_[kind][seen] == kNoBlock) {
      return refused("a window that has left positions behind");
    }
  }
  keep_copies();
  drop(count(ceil_div(length, kBlockTokens)));
  length_ = length;
  if (checkpoint_ == length && length > 0 && checkpoint_fixed_ != kNoBlock) {
    ledger_->share(layout_->fixed_kind(), checkpoint_fixed_);
    release_fixed(fixed_);
    fixed_ = checkpoint_fixed_;
  } else if (checkpoint_.value_or(0) > length) {
    drop_checkpoint();
  }
  return Ok{};
}

void SequenceState::drop(std::size_t first) {
  if (first == 0) keep_copies();
  for (std::size_t kind = 0; kind < tables_.size(); ++kind) {
    auto& table = tables_[kind];
    for (std::size_t i = first; i < table.size(); ++i) release(kind, table[i]);
    table.resize(std::min(first, table.size()));
  }
  if (first > 0) return;
  release_fixed(fixed_);
  release_fixed(next_fixed_);
}

}  // namespace moracle
