// One budget of memory for everything that sequences keep on a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "base/result.h"

namespace moracle {

using BlockId = std::uint32_t;
inline constexpr BlockId kNoBlock = UINT32_MAX;

// Blocks of a few sizes, counted by reference. Address space for each size is mapped once, when the pool is made;
// pages become memory when a block is first taken, and the pages of all sizes together never exceed the budget: where
// one size needs what another has left free, the free blocks' pages go back to the system first. Taking a block maps
// nothing. Used by one thread at a time.
class BlockPool {
 public:
  // `block_bytes`: of each kind of block; those of 0 bytes are never taken. Errors: "memory.allocate".
  static Result<std::shared_ptr<BlockPool>> make(const std::vector<std::size_t>& block_bytes, std::size_t budget);

  // A block that one owner refers to; its contents are left from earlier ones. Empty: the budget is spent.
  [[nodiscard]] std::optional<BlockId> take(std::size_t kind);
  void share(std::size_t kind, BlockId block) { ++kinds_[kind].references[block]; }
  void release(std::size_t kind, BlockId block);
  [[nodiscard]] bool shared(std::size_t kind, BlockId block) const { return kinds_[kind].references[block] > 1; }
  [[nodiscard]] std::byte* data(std::size_t kind, BlockId block) {
    return kinds_[kind].memory.data() + block * kinds_[kind].stride;
  }
  [[nodiscard]] std::size_t block_bytes(std::size_t kind) const { return kinds_[kind].bytes; }
  [[nodiscard]] std::size_t stride(std::size_t kind) const { return kinds_[kind].stride; }
  [[nodiscard]] std::size_t kinds() const { return kinds_.size(); }

  [[nodiscard]] std::size_t budget() const { return budget_; }
  [[nodiscard]] std::size_t used() const { return used_; }            // bytes of blocks that somebody refers to
  [[nodiscard]] std::size_t committed() const { return committed_; }  // bytes of blocks that have pages

 private:
  struct Kind {
    std::size_t bytes = 0;
    std::size_t stride = 0;  // bytes from block to block: whole pages
    PageBuffer memory{};
    std::vector<std::uint32_t> references{};  // of every block that was ever taken
    std::vector<BlockId> free{};              // with pages
    std::vector<BlockId> released{};          // without
    std::size_t count = 0;                    // that the budget has room for
  };
  // Gives pages of free blocks of other kinds back until `bytes` more fit.
  bool make_room(std::size_t bytes);

  std::vector<Kind> kinds_;
  std::size_t budget_ = 0;
  std::size_t used_ = 0;
  std::size_t committed_ = 0;
};

}  // namespace moracle
