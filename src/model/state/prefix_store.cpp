#include "model/state/prefix_store.h"

#include <algorithm>

#include "base/generic/count.h"
#include "base/random/keyed_hash.h"

namespace moracle {

namespace {

std::uint64_t hash_of(std::uint64_t before, std::span<const std::int32_t> ids) {
  const KeyedHash hash;
  return hash(before ^ hash(std::string_view(reinterpret_cast<const char*>(ids.data()), ids.size_bytes())));
}

}  // namespace

PrefixStore::PrefixStore(std::shared_ptr<const StateLayout> layout, std::shared_ptr<BlockLedger> ledger)
    : layout_(std::move(layout)), ledger_(std::move(ledger)) {}

PrefixStore::Place PrefixStore::find(std::uint64_t hash, std::uint64_t parent, std::span<const std::int32_t> ids,
                                     std::string_view salt) {
  const auto at = by_hash_.find(hash);
  if (at == by_hash_.end()) return entries_.end();
  const Entry& entry = *at->second;
  const bool same = entry.parent == parent && std::equal(ids.begin(), ids.end(), entry.ids.begin()) &&
                    (parent != 0 || entry.salt == salt);
  return same ? at->second : entries_.end();
}

// The stored blocks that `ids` begin with, in their order.
std::vector<PrefixStore::Place> PrefixStore::chain(std::span<const std::int32_t> ids, std::string_view salt) {
  std::vector<Place> found;
  std::uint64_t hash = KeyedHash{}(salt);
  std::uint64_t parent = 0;
  for (; ids.size() >= count(kBlockTokens); ids = ids.subspan(count(kBlockTokens))) {
    const auto block = ids.first(count(kBlockTokens));
    hash = hash_of(hash, block);
    const Place place = find(hash, parent, block, salt);
    if (place == entries_.end()) break;
    parent = place->serial;
    found.push_back(place);
  }
  return found;
}

// Whether a sequence can go on behind these blocks.
bool PrefixStore::complete(std::span<const Place> chain) const {
  if (layout_->fixed_bytes() > 0 && chain.back()->fixed == kNoBlock) return false;
  const auto length = std::ssize(chain) * kBlockTokens;
  for (std::size_t kind = 0; kind < layout_->kinds().size(); ++kind) {
    const StateLayout::Kind& of = layout_->kinds()[kind];
    if (of.bytes == 0) continue;
    const std::int64_t seen = of.window == 0 ? 0 : std::max<std::int64_t>(0, length - of.window + 1) / kBlockTokens;
    for (std::size_t i = count(seen); i < chain.size(); ++i) {
      if (chain[i]->blocks[kind] == kNoBlock) return false;
    }
  }
  return true;
}

// A block comes before those behind it, so that it is not given up before them.
void PrefixStore::touch(std::span<const Place> chain) {
  for (std::size_t i = chain.size(); i > 0; --i) entries_.splice(entries_.begin(), entries_, chain[i - 1]);
}

std::int64_t PrefixStore::restore(SequenceState& state, std::span<const std::int32_t> ids, std::string_view salt) {
  if (state.layout() != layout_.get() || state.length() > 0 || ids.empty()) return 0;
  std::vector<Place> found = chain(ids.first(ids.size() - 1), salt);
  while (!found.empty() && !complete(found)) found.pop_back();
  if (found.empty()) return 0;
  state.drop(0);
  for (std::size_t kind = 0; kind < layout_->kinds().size(); ++kind) {
    if (layout_->kinds()[kind].bytes == 0) continue;
    for (const Place place : found) {
      const BlockId block = place->blocks[kind];
      if (block != kNoBlock) ledger_->share(kind, block);
      state.tables_[kind].push_back(block);
    }
  }
  if (layout_->fixed_bytes() > 0) {
    state.fixed_ = found.back()->fixed;
    ledger_->share(layout_->fixed_kind(), state.fixed_);
  }
  state.length_ = std::ssize(found) * kBlockTokens;
  touch(found);
  return state.length_;
}

void PrefixStore::store(const SequenceState& state, std::span<const std::int32_t> ids, std::string_view salt) {
  if (state.layout() != layout_.get()) return;
  const std::size_t whole = std::min(ids.size(), count(state.length())) / count(kBlockTokens);
  std::vector<Place> held = chain(ids.first(whole * count(kBlockTokens)), salt);
  std::uint64_t hash = held.empty() ? KeyedHash{}(salt) : held.back()->hash;
  for (std::size_t i = held.size(); i < whole; ++i) {
    const auto block = ids.subspan(i * count(kBlockTokens), count(kBlockTokens));
    hash = hash_of(hash, block);
    if (by_hash_.contains(hash)) break;  // of other ids: such a block is not stored
    Entry& entry = entries_.emplace_front();
    entry.serial = ++serial_;
    entry.parent = held.empty() ? 0 : held.back()->serial;
    entry.hash = hash;
    if (held.empty()) entry.salt = salt;
    std::copy(block.begin(), block.end(), entry.ids.begin());
    for (std::size_t kind = 0; kind < layout_->kinds().size(); ++kind) {
      const auto& table = state.tables_[kind];
      entry.blocks.push_back(i < table.size() ? table[i] : kNoBlock);
      if (entry.blocks.back() != kNoBlock) ledger_->share(kind, entry.blocks.back());
    }
    by_hash_.emplace(hash, entries_.begin());
    held.push_back(entries_.begin());
  }
  // The state stands behind its last position only.
  const bool stands_here = !held.empty() && std::ssize(held) * kBlockTokens == state.length();
  if (stands_here && state.fixed_ != kNoBlock && held.back()->fixed == kNoBlock) {
    held.back()->fixed = state.fixed_;
    ledger_->share(layout_->fixed_kind(), state.fixed_);
  }
  touch(held);
}

bool PrefixStore::frees(const Entry& entry) const {
  for (std::size_t kind = 0; kind < entry.blocks.size(); ++kind) {
    if (entry.blocks[kind] != kNoBlock && !ledger_->shared(kind, entry.blocks[kind])) return true;
  }
  return entry.fixed != kNoBlock && !ledger_->shared(layout_->fixed_kind(), entry.fixed);
}

bool PrefixStore::evict() {
  for (auto place = entries_.rbegin(); place != entries_.rend(); ++place) {
    if (!frees(*place)) continue;
    remove(std::prev(place.base()));
    return true;
  }
  return false;
}

void PrefixStore::remove(Place place) {
  for (std::size_t kind = 0; kind < place->blocks.size(); ++kind) {
    if (place->blocks[kind] != kNoBlock) ledger_->release(kind, place->blocks[kind]);
  }
  if (place->fixed != kNoBlock) ledger_->release(layout_->fixed_kind(), place->fixed);
  by_hash_.erase(place->hash);
  entries_.erase(place);
}

void PrefixStore::clear() {
  while (!entries_.empty()) remove(entries_.begin());
}

std::size_t PrefixStore::bytes() const {
  std::size_t bytes = 0;
  for (const Entry& entry : entries_) {
    for (std::size_t kind = 0; kind < entry.blocks.size(); ++kind) {
      const bool alone = entry.blocks[kind] != kNoBlock && !ledger_->shared(kind, entry.blocks[kind]);
      if (alone) bytes += ledger_->footprint(kind);
    }
    if (entry.fixed != kNoBlock && !ledger_->shared(layout_->fixed_kind(), entry.fixed)) {
      bytes += ledger_->footprint(layout_->fixed_kind());
    }
  }
  return bytes;
}

}  // namespace moracle
