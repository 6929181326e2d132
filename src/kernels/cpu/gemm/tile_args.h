// One tile of a GemmArgs: some of its tokens against one of its panels, or against several.
#pragma once

#include "kernels/cpu/target.h"

namespace moracle::cpu {

constexpr std::int64_t kMaxTile = 6;           // tokens
constexpr std::int64_t kAheadPlaces = 4;       // of TileArgs::ahead
constexpr int kShareBits = 8;                  // of TileArgs::next_share behind the point
constexpr std::int64_t kPrefetchBytes = 8192;  // ahead of the multiply-adds

struct TileArgs {
  std::int64_t tokens;
  const void* const* x;
  const void* const* sums;
  const float* const* input_scales;
  const float* token_scale;
  const std::byte* const* panels;
  const float* panel_scale;
  float* const* out;
  std::int64_t out_stride;
  std::int64_t groups;
  std::int64_t steps;
  std::int64_t last_steps;
  ScaleCode scale;
  bool zeros;
  ActScaling scaling;
  std::int64_t scale_groups;
  // Four places whose lines are prefetched while this panel is worked on, an equal share of each: the panels that come
  // next, as several streams from memory. Null: only the panel itself, kPrefetchBytes ahead; lines past it, from `end`
  // on, `gap` bytes further.
  const std::byte* const* ahead;
  const std::byte* end;
  std::int64_t gap;
  bool again;  // an earlier tile has read these panels
  // What such a tile prefetches instead: from here on, next_share / 2^kShareBits as many bytes as its panel has. Null:
  // nothing.
  const std::byte* next;
  std::int64_t next_share;
};

}  // namespace moracle::cpu
