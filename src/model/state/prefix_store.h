// Prefixes of sequences that were run, for sequences that begin alike.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/model.h"
#include "model/state/state.h"

namespace moracle {

// Stored by blocks of 64 tokens. A block is found by a hash chained over all blocks before it and by its ids, which are
// compared, so that no two prefixes are taken for one another. A salt sets whole chains apart. Blocks are those of the
// states themselves, referred to once more: the store takes memory of the same budget, and only until it is asked to
// give up the least recently used. Recurrent states are stored where a sequence stood at the end of a block; a prefix
// ends at one of them.
class PrefixStore {
 public:
  PrefixStore(std::shared_ptr<const StateLayout> layout, std::shared_ptr<BlockLedger> ledger);
  PrefixStore(const PrefixStore&) = delete;
  PrefixStore& operator=(const PrefixStore&) = delete;
  ~PrefixStore() { clear(); }

  // Lets a new state of this model begin with the longest stored prefix of `ids`, but for the last one. Returns its
  // tokens.
  std::int64_t restore(SequenceState& state, std::span<const std::int32_t> ids, std::string_view salt);
  // Stores the whole blocks of `ids` that the state holds.
  void store(const SequenceState& state, std::span<const std::int32_t> ids, std::string_view salt);
  // Gives up the least recently used block that nothing else refers to. False: there is none.
  bool evict();
  void clear();

  // Whether sequences have to stop at the ends of blocks for their recurrent state to be stored there.
  [[nodiscard]] bool needs_stops() const { return layout_->fixed_bytes() > 0; }
  // Bytes that nothing else refers to.
  [[nodiscard]] std::size_t bytes() const;
  [[nodiscard]] std::size_t blocks() const { return entries_.size(); }

 private:
  struct Entry {
    std::uint64_t serial = 0;
    std::uint64_t parent = 0;  // serial of the block before; 0: the first block
    std::uint64_t hash = 0;
    std::string salt{};  // of a first block
    std::array<std::int32_t, kBlockTokens> ids{};
    std::vector<BlockId> blocks{};  // by kind; kNoBlock: gone when it was stored
    BlockId fixed = kNoBlock;       // the recurrent state behind it
  };
  using Place = std::list<Entry>::iterator;

  [[nodiscard]] std::vector<Place> chain(std::span<const std::int32_t> ids, std::string_view salt);
  // The entry of a block; end(): there is none.
  [[nodiscard]] Place find(std::uint64_t hash, std::uint64_t parent, std::span<const std::int32_t> ids,
                           std::string_view salt);
  [[nodiscard]] bool complete(std::span<const Place> chain) const;
  [[nodiscard]] bool frees(const Entry& entry) const;
  void touch(std::span<const Place> chain);
  void remove(Place place);

  std::shared_ptr<const StateLayout> layout_;
  std::shared_ptr<BlockLedger> ledger_;
  std::list<Entry> entries_;  // the most recently used first; a block before those that follow it in its chain
  std::unordered_map<std::uint64_t, Place> by_hash_;
  std::uint64_t serial_ = 0;
};

}  // namespace moracle
