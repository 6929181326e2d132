#include "model/state/arena.h"

#include <algorithm>

#include "base/checked.h"
#include "base/pages.h"

namespace moracle {

namespace {

std::size_t whole(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

Result<std::unique_ptr<BlockArena>> PageArena::make(const std::vector<std::size_t>& block_bytes, std::size_t budget) {
  auto arena = std::make_unique<PageArena>();
  arena->budget_ = budget;
  for (const std::size_t bytes : block_bytes) {
    Kind kind{.stride = whole(bytes, page_bytes())};
    kind.count = bytes == 0 ? 0 : std::min<std::size_t>(budget / kind.stride, kNoBlock);
    MORACLE_ASSIGN(kind.memory, PageBuffer::allocate(kind.count * kind.stride));
    kind.start = kind.memory.data();
    kind.free.reserve(kind.count);
    kind.bare.reserve(kind.count);
    arena->kinds_.push_back(std::move(kind));
  }
  return std::unique_ptr<BlockArena>(std::move(arena));
}

std::optional<BlockId> PageArena::take(std::size_t kind, std::size_t used) {
  Kind& of = kinds_[kind];
  BlockId block = kNoBlock;
  if (!of.free.empty()) {
    block = of.free.back();
    of.free.pop_back();
    return block;
  }
  if ((of.bare.empty() && of.made == of.count) || !make_room(of.stride, used)) return std::nullopt;
  if (!of.bare.empty()) {
    block = of.bare.back();
    of.bare.pop_back();
  } else {
    block = static_cast<BlockId>(of.made++);
  }
  committed_ += of.stride;
  return block;
}

bool PageArena::make_room(std::size_t bytes, std::size_t used) {
  if (used + bytes > budget_) return false;
  for (Kind& kind : kinds_) {
    while (committed_ + bytes > budget_ && !kind.free.empty()) {
      const BlockId block = kind.free.back();
      kind.free.pop_back();
      give_back_pages(kind.start + block * kind.stride, kind.stride);
      kind.bare.push_back(block);
      committed_ -= kind.stride;
    }
  }
  return true;
}

std::size_t SlabArena::slab_for(const std::vector<std::size_t>& footprints) {
  constexpr std::size_t kMaxOfLargest = 8;
  constexpr std::size_t kLeast = std::size_t{1} << 21U;
  const std::size_t largest = footprints.empty() ? 0 : *std::max_element(footprints.begin(), footprints.end());
  if (largest == 0) return kLeast;
  std::size_t best = 0;
  double least_waste = 1.0;
  const std::size_t first = (kLeast + largest - 1) / largest;
  for (std::size_t times = first; times < first + kMaxOfLargest; ++times) {
    const std::size_t slab = times * largest;
    double waste = 0.0;
    for (const std::size_t bytes : footprints) {
      if (bytes > 0) waste = std::max(waste, static_cast<double>(slab % bytes) / static_cast<double>(slab));
    }
    if (best == 0 || waste < least_waste) {
      best = slab;
      least_waste = waste;
    }
    if (least_waste <= 1.0 / 16) break;
  }
  return best;
}

Result<std::unique_ptr<BlockArena>> SlabArena::make(const Device& device, const std::vector<std::size_t>& block_bytes,
                                                    std::size_t budget) {
  auto arena = std::make_unique<SlabArena>();
  std::vector<std::size_t> footprints;
  footprints.reserve(block_bytes.size());
  for (const std::size_t bytes : block_bytes) footprints.push_back(whole(bytes, kUnit));
  arena->slab_bytes_ = slab_for(footprints);
  const std::size_t slabs = std::min(budget / arena->slab_bytes_, std::size_t{kNoBlock} * kUnit / arena->slab_bytes_);
  MORACLE_ASSIGN(arena->memory_, device.allocate(slabs * arena->slab_bytes_, "keys, values and recurrent states"));
  std::size_t most = 0;
  for (const std::size_t bytes : footprints) {
    Kind kind{.footprint = bytes, .each = bytes == 0 ? 0 : arena->slab_bytes_ / bytes};
    kind.open.reserve(slabs);
    most = std::max(most, kind.each);
    arena->kinds_.push_back(std::move(kind));
  }
  arena->slabs_.resize(slabs);
  arena->unused_.reserve(slabs);
  for (std::size_t slab = slabs; slab > 0; --slab) {
    arena->slabs_[slab - 1].free.reserve(most);
    arena->unused_.push_back(slab - 1);
  }
  return std::unique_ptr<BlockArena>(std::move(arena));
}

std::optional<BlockId> SlabArena::take(std::size_t kind, std::size_t /*used*/) {
  Kind& of = kinds_[kind];
  if (of.open.empty()) {
    if (unused_.empty() || of.each == 0) return std::nullopt;
    Slab& slab = slabs_[unused_.back()];
    slab.kind = kind;
    for (std::size_t place = of.each; place > 0; --place) slab.free.push_back(static_cast<std::uint32_t>(place - 1));
    of.open.push_back(unused_.back());
    unused_.pop_back();
  }
  const std::size_t at = of.open.back();
  Slab& slab = slabs_[at];
  const std::size_t place = slab.free.back();
  slab.free.pop_back();
  if (slab.free.empty()) of.open.pop_back();
  return static_cast<BlockId>((at * slab_bytes_ + place * of.footprint) / kUnit);
}

void SlabArena::give_back(std::size_t kind, BlockId block) {
  Kind& of = kinds_[kind];
  const std::size_t at = slab_of(block);
  Slab& slab = slabs_[at];
  if (slab.free.empty()) of.open.push_back(at);
  slab.free.push_back(static_cast<std::uint32_t>(index(kind, block) - at * of.each));
  if (slab.free.size() < of.each) return;
  slab.free.clear();
  slab.kind = kNoKind;
  of.open.erase(std::find(of.open.begin(), of.open.end(), at));
  unused_.push_back(at);
}

std::size_t SlabArena::index(std::size_t kind, BlockId block) const {
  const Kind& of = kinds_[kind];
  const std::size_t slab = slab_of(block);
  return slab * of.each + (std::size_t{block} * kUnit - slab * slab_bytes_) / of.footprint;
}

}  // namespace moracle
