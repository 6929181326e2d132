// One tile of a GemmArgs: some of its tokens against one of its panels, or against several.
#pragma once

#include "kernels/cpu/target.h"

namespace moracle::cpu {

constexpr std::int64_t kMaxTile = 6;           // tokens
constexpr std::uint64_t kPrefetchPanels = 4;   // of PrefetchPolicy::panels
constexpr int kShareBits = 8;                  // of PrefetchPolicy::next_share behind the point
constexpr std::int64_t kPrefetchBytes = 8192;  // ahead of the multiply-adds

// What a tile prefetches while it works on its panels.
struct PrefetchPolicy {
  // Of each of kPrefetchPanels panels an equal share, as several streams from memory. Null: of the own panel, a
  // distance of kPrefetchBytes ahead; lines from `panel_end` on lie `jump` bytes further.
  const std::byte* const* panels = nullptr;
  const std::byte* panel_end = nullptr;
  std::int64_t jump = 0;
  // An earlier tile has read these panels. Prefetched instead: from `next` on, unless null, next_share / 2^kShareBits
  // as many bytes as the panel has.
  bool cached = false;
  const std::byte* next = nullptr;
  std::int64_t next_share = 0;
};

struct TileArgs : GemmArgs {
  PrefetchPolicy prefetch{};
};

}  // namespace moracle::cpu
