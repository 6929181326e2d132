#include "slots/extents.h"

#include <algorithm>

#include "checkpoint/mapped_file.h"

namespace moracle {

namespace {

// Tensors that are no further apart are read at once: a disk takes as long for a request as for so many bytes.
constexpr std::size_t kGap = std::size_t{32} << 10U;
// Of a piece: one is read at half the rate that a disk of flash has with several requests.
constexpr std::size_t kPiece = std::size_t{1} << 20U;
// Codes, scales and zero points of three matrices.
constexpr std::size_t kMostTensors = 9;

// How far an address is behind the begin of a block of its file: mappings begin with one.
std::size_t within_block(const std::byte* at) {
  return reinterpret_cast<std::uintptr_t>(at) % kDiskBlock;
}

// Tensors of one expert, neighbours joined.
std::vector<std::span<const std::byte>> joined(std::vector<std::span<const std::byte>> parts,
                                               const Checkpoint& checkpoint) {
  std::erase_if(parts, [](std::span<const std::byte> part) { return part.empty(); });
  std::ranges::sort(parts, {}, [](std::span<const std::byte> part) { return part.data(); });
  std::vector<std::span<const std::byte>> extents;
  for (const std::span<const std::byte> part : parts) {
    if (!extents.empty() && part.data() <= extents.back().data() + extents.back().size() + kGap) {
      std::span<const std::byte>& last = extents.back();
      const std::span<const std::byte> both(last.data(),
                                            std::max(last.data() + last.size(), part.data() + part.size()));
      if (checkpoint.in_one_file(both)) {
        last = both;
        continue;
      }
    }
    extents.push_back(part);
  }
  return extents;
}

}  // namespace

ExpertExtents::ExpertExtents(const CanonicalExperts::Expert& expert, const Checkpoint& checkpoint) {
  std::vector<std::span<const std::byte>> parts;
  complete_ = true;
  for (const CanonicalLinear* linear : matrices_of(expert)) {
    const std::size_t before = parts.size();
    linear->weight->list_stored(parts);
    complete_ = complete_ && parts.size() > before;
  }
  for (std::span<const std::byte> extent : joined(std::move(parts), checkpoint)) {
    const std::size_t before = within_block(extent.data());
    extents_.push_back({.stored = extent, .block = room_});
    bytes_ += extent.size();
    std::size_t block = room_;
    // The last piece may be read two blocks beyond its end, and no other.
    room_ += (before + extent.size() + kDiskBlock - 1) / kDiskBlock * kDiskBlock + 2 * kDiskBlock;
    while (!extent.empty()) {
      const std::size_t size = std::min(extent.size(), kPiece - within_block(extent.data()));
      pieces_.push_back({.stored = extent.first(size), .block = block});
      extent = extent.subspan(size);
      block += kPiece;
    }
  }
}

std::size_t ExpertExtents::most_room(std::size_t stored_bytes) {
  return (stored_bytes / kDiskBlock + 1) * kDiskBlock + kMostTensors * (kGap + 4 * kDiskBlock);
}

Result<> ExpertExtents::read(std::size_t piece, const Checkpoint& checkpoint, std::span<std::byte> room) const {
  const Piece& at = pieces_[piece];
  MORACLE_TRY(checkpoint.read(at.stored, room.subspan(at.block)));
  return Ok{};
}

std::span<const std::byte> ExpertExtents::copy_of(std::span<const std::byte> part,
                                                  std::span<const std::byte> room) const {
  const auto after =
      std::ranges::upper_bound(extents_, part.data(), {}, [](const Piece& extent) { return extent.stored.data(); });
  if (part.empty() || after == extents_.begin()) return {};
  const Piece& extent = *std::prev(after);
  const auto behind = static_cast<std::size_t>(part.data() - extent.stored.data());
  return room.subspan(extent.block + within_block(extent.stored.data()) + behind, part.size());
}

CanonicalExperts::Expert ExpertExtents::relocated(const CanonicalExperts::Expert& expert,
                                                  std::span<const std::byte> room) const {
  CanonicalExperts::Expert moved = expert;
  const auto copy = [&](std::span<const std::byte> part) { return copy_of(part, room); };
  for (CanonicalLinear* linear : matrices_of(moved)) linear->weight = linear->weight->relocated(copy);
  return moved;
}

}  // namespace moracle
