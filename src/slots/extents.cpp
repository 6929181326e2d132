#include "slots/extents.h"

#include <algorithm>
#include <array>

#include "checkpoint/mapped_file.h"

namespace moracle {

namespace {

// Tensors that are no further apart are read at once: a disk takes as long for a request as for so many bytes.
constexpr std::size_t kGap = std::size_t{32} << 10U;
// Codes, scales and zero points of three matrices.
constexpr std::size_t kMostTensors = 9;

std::size_t room_of(std::span<const std::byte> part) {
  return (part.size() + kDiskBlock - 1) / kDiskBlock * kDiskBlock + 2 * kDiskBlock;
}

std::array<const CanonicalLinear*, 3> matrices_of(const CanonicalExperts::Expert& expert) {
  return {&expert.gate, &expert.up, &expert.down};
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
  std::erase_if(parts, [](std::span<const std::byte> part) { return part.empty(); });
  std::ranges::sort(parts, {}, [](std::span<const std::byte> part) { return part.data(); });
  for (const std::span<const std::byte> part : parts) {
    if (!extents_.empty()) {
      std::span<const std::byte>& last = extents_.back().stored;
      const std::byte* const end = std::max(last.data() + last.size(), part.data() + part.size());
      const std::span<const std::byte> joined(last.data(), end);
      const bool near = part.data() <= last.data() + last.size() + kGap;
      if (near && checkpoint.in_one_file(joined)) {
        last = joined;
        continue;
      }
    }
    extents_.push_back({.stored = part});
  }
  for (const Extent& extent : extents_) {
    room_ += room_of(extent.stored);
    bytes_ += extent.stored.size();
  }
}

std::size_t ExpertExtents::most_room(std::size_t stored_bytes) {
  return (stored_bytes / kDiskBlock + 1) * kDiskBlock + kMostTensors * (kGap + 3 * kDiskBlock);
}

Result<> ExpertExtents::read(const Checkpoint& checkpoint, std::span<std::byte> room) {
  for (Extent& extent : extents_) {
    const std::size_t size = room_of(extent.stored);
    MORACLE_ASSIGN(extent.copy, checkpoint.read(extent.stored, room.first(size)));
    room = room.subspan(size);
  }
  return Ok{};
}

std::span<const std::byte> ExpertExtents::copy_of(std::span<const std::byte> part) const {
  const auto after =
      std::ranges::upper_bound(extents_, part.data(), {}, [](const Extent& extent) { return extent.stored.data(); });
  if (part.empty() || after == extents_.begin()) return {};
  const Extent& extent = *std::prev(after);
  return extent.copy.subspan(static_cast<std::size_t>(part.data() - extent.stored.data()), part.size());
}

CanonicalExperts::Expert ExpertExtents::relocated(const CanonicalExperts::Expert& expert) const {
  CanonicalExperts::Expert moved = expert;
  const auto copy = [this](std::span<const std::byte> part) { return copy_of(part); };
  for (CanonicalLinear* linear : {&moved.gate, &moved.up, &moved.down})
    linear->weight = linear->weight->relocated(copy);
  return moved;
}

}  // namespace moracle
