// One tile of a GemmArgs, some of its tokens against one of its panels or several, and which lines it prefetches.
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

template <class V>
struct Prefetch {
  static void l1(const std::byte* line) { V::prefetch_l1(line); }
  static void l2(const std::byte* line) { V::prefetch_l2(line); }

  // What a token's results of a panel will overwrite. Those of a prompt are in no cache, and a tile's stores would wait
  // for each of their lines.
  static void results(const float* out) {
#pragma GCC unroll 2
    for (int i = 0; i < kPanelRows; i += 16) V::prefetch_store(out + i);
  }

  // How far ahead of `at` lines are prefetched: where that is behind the panel, to where the thread goes on.
  static std::int64_t distance(const TileArgs& args, const std::byte* at) {
    return at + kPrefetchBytes >= args.prefetch.panel_end ? kPrefetchBytes + args.prefetch.jump : kPrefetchBytes;
  }

  // As much as the `bytes` at each of at[P] are: of these panels, or of what comes next, so that P panels prefetch as
  // many bytes as they have, an equal share of each. L2 then holds the next panels, and more lines are on their way at
  // a time than one stream's prefetcher keeps.
  template <std::size_t P>
  static void panels(const TileArgs& args, const std::byte* const (&at)[P], std::int64_t bytes, std::int64_t distance) {
    if (!V::kInterleaved || args.prefetch.panels == nullptr) {
#pragma GCC unroll 4
      for (const std::byte* const panel : at) {
#pragma GCC unroll 8
        for (std::int64_t line = 0; line < bytes; line += 64) l1(panel + distance + line);
      }
      return;
    }
    // Unsigned, so that places are found by shifts and masks.
    const auto done = static_cast<std::uint64_t>(at[0] - args.panels[0]) / 64;
#pragma GCC unroll 8
    for (std::int64_t line = 0; line < bytes / 64; ++line) {
#pragma GCC unroll 4
      for (std::uint64_t p = 0; p < P; ++p) {
        const std::uint64_t index = (done + static_cast<std::uint64_t>(line)) * P + p;
        l2(args.prefetch.panels[index % kPrefetchPanels] + index / kPrefetchPanels * 64);
      }
    }
  }
  static void panel(const TileArgs& args, const std::byte* at, std::int64_t bytes, std::int64_t distance) {
    panels(args, {at}, bytes, distance);
  }
};

// The same where a tile walks a panel once for each of `Parts` parts of its rows: lines are prefetched evenly over all
// walks, a part of the panel ahead, into L2; else memory would rest while a panel is walked again.
template <class V>
struct EvenPrefetch {
  const std::byte* from;  // what the first step of this walk prefetches
  const std::byte* panel;

  // For registers [first, first + rows) of args' panel, whose groups end with so many bytes.
  template <class D>
  static EvenPrefetch of(const TileArgs& args, std::int64_t tail_bytes, int first, int rows) {
    const std::int64_t steps = (args.shape.groups - 1) * args.shape.steps + args.shape.last_steps;
    const std::int64_t bytes = steps * D::kBytes + args.shape.groups * tail_bytes;
    return {args.panels[0] + bytes * (first / rows + 1) / (V::kRegs / rows), args.panels[0]};
  }

  template <int Parts>
  void lines(const std::byte* at, std::int64_t bytes) const {
    const std::byte* const line = from + (at - panel) / Parts;
    for (std::int64_t i = 0; i < bytes / Parts; i += 64) Prefetch<V>::l2(line + i);
  }
};

// What a tile prefetches that need not prefetch what it reads itself: its share of what comes next, a line at a time,
// so that memory does not rest until the last tile is done.
template <class V>
struct NextLines {
  const std::byte* line;
  const std::byte* from;
  const std::byte* walked;  // where the tile begins to read
  std::int64_t share;       // lines for every line that is read, times 2^kShareBits

  // Where an earlier tile has read the panel: of the next panel.
  static NextLines of_panel(const TileArgs& args) {
    return {.line = args.prefetch.next,
            .from = args.prefetch.next,
            .walked = args.panels[0],
            .share = args.prefetch.next_share};
  }

  // Before what lies at `at` is read.
  void until(const std::byte* at) {
    const std::byte* const end = from + ((at - walked) * share >> kShareBits);
    for (; line < end; line += 64) Prefetch<V>::l2(line);
  }
};

}  // namespace moracle::cpu
