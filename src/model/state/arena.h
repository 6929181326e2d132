// The memory behind the blocks of sequences, on one device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/memory.h"
#include "base/result.h"
#include "device/device.h"

namespace moracle {

using BlockId = std::uint32_t;
inline constexpr BlockId kNoBlock = UINT32_MAX;

// Blocks of a few kinds, each of one size, within one budget. A block starts at data(kind) + id * stride(kind). Taking
// a block allocates nothing. Used by one thread at a time.
class BlockArena {
 public:
  BlockArena() = default;
  BlockArena(const BlockArena&) = delete;
  BlockArena& operator=(const BlockArena&) = delete;
  virtual ~BlockArena() = default;

  // Memory with whatever was written there before. Empty: there is no room. `used`: bytes of all blocks in use.
  [[nodiscard]] virtual std::optional<BlockId> take(std::size_t kind, std::size_t used) = 0;
  virtual void give_back(std::size_t kind, BlockId block) = 0;
  // A number below capacity(kind), one for each block that the kind may have.
  [[nodiscard]] virtual std::size_t index(std::size_t kind, BlockId block) const = 0;
  [[nodiscard]] virtual std::size_t capacity(std::size_t kind) const = 0;
  [[nodiscard]] virtual std::byte* data(std::size_t kind) const = 0;
  [[nodiscard]] virtual std::size_t stride(std::size_t kind) const = 0;
  // Bytes that a block takes of the budget.
  [[nodiscard]] virtual std::size_t footprint(std::size_t kind) const = 0;
  // Bytes that are memory now: of a device all, of the host those with pages.
  [[nodiscard]] virtual std::size_t committed() const = 0;
};

// Pages of the host. Address space for each kind is mapped once; pages become memory when a block is first taken, and
// the pages of all kinds together never exceed the budget: where one kind needs what another has left free, the free
// blocks' pages go back to the system first.
class PageArena final : public BlockArena {
 public:
  // `block_bytes`: of each kind of block; those of 0 bytes are never taken. Errors: "memory.allocate".
  static Result<std::unique_ptr<BlockArena>> make(const std::vector<std::size_t>& block_bytes, std::size_t budget);

  [[nodiscard]] std::optional<BlockId> take(std::size_t kind, std::size_t used) override;
  void give_back(std::size_t kind, BlockId block) override { kinds_[kind].free.push_back(block); }
  [[nodiscard]] std::size_t index(std::size_t /*kind*/, BlockId block) const override { return block; }
  [[nodiscard]] std::size_t capacity(std::size_t kind) const override { return kinds_[kind].count; }
  [[nodiscard]] std::byte* data(std::size_t kind) const override { return kinds_[kind].start; }
  [[nodiscard]] std::size_t stride(std::size_t kind) const override { return kinds_[kind].stride; }
  [[nodiscard]] std::size_t footprint(std::size_t kind) const override { return kinds_[kind].stride; }
  [[nodiscard]] std::size_t committed() const override { return committed_; }

 private:
  struct Kind {
    std::size_t stride = 0;  // bytes from block to block: whole pages
    PageBuffer memory{};
    std::byte* start = nullptr;   // of memory
    std::vector<BlockId> free{};  // with pages
    std::vector<BlockId> bare{};  // without, after they had some
    std::size_t made = 0;         // blocks that were ever taken
    std::size_t count = 0;        // that the budget has room for
  };
  // Gives pages of free blocks back until `bytes` more fit.
  bool make_room(std::size_t bytes, std::size_t used);

  std::vector<Kind> kinds_;
  std::size_t budget_ = 0;
  std::size_t committed_ = 0;
};

// One buffer of a device, cut into slabs of one size that kinds take and return. A block's id is its offset in units of
// 256 bytes, whatever its kind.
class SlabArena final : public BlockArena {
 public:
  static constexpr std::size_t kUnit = 256;

  // Allocates the budget, as many whole slabs as it has. Errors: those of Device::allocate.
  static Result<std::unique_ptr<BlockArena>> make(const Device& device, const std::vector<std::size_t>& block_bytes,
                                                  std::size_t budget);

  [[nodiscard]] std::optional<BlockId> take(std::size_t kind, std::size_t used) override;
  void give_back(std::size_t kind, BlockId block) override;
  [[nodiscard]] std::size_t index(std::size_t kind, BlockId block) const override;
  [[nodiscard]] std::size_t capacity(std::size_t kind) const override { return slabs_.size() * kinds_[kind].each; }
  [[nodiscard]] std::byte* data(std::size_t /*kind*/) const override { return memory_.data(); }
  [[nodiscard]] std::size_t stride(std::size_t /*kind*/) const override { return kUnit; }
  [[nodiscard]] std::size_t footprint(std::size_t kind) const override { return kinds_[kind].footprint; }
  [[nodiscard]] std::size_t committed() const override { return memory_.size(); }
  [[nodiscard]] std::size_t slab_bytes() const { return slab_bytes_; }

  // The slab that wastes at most a sixteenth of itself on blocks of any of these sizes, or the best of the small ones.
  [[nodiscard]] static std::size_t slab_for(const std::vector<std::size_t>& footprints);

 private:
  static constexpr std::size_t kNoKind = SIZE_MAX;
  struct Kind {
    std::size_t footprint = 0;        // bytes of a block: whole units
    std::size_t each = 0;             // blocks in a slab
    std::vector<std::size_t> open{};  // slabs of the kind with room
  };
  struct Slab {
    std::size_t kind = kNoKind;
    std::vector<std::uint32_t> free{};  // places of it
  };
  [[nodiscard]] std::size_t slab_of(BlockId block) const { return std::size_t{block} * kUnit / slab_bytes_; }

  std::vector<Kind> kinds_;
  std::vector<Slab> slabs_;
  std::vector<std::size_t> unused_;  // slabs of no kind
  std::size_t slab_bytes_ = 0;
  Buffer memory_;
};

}  // namespace moracle
