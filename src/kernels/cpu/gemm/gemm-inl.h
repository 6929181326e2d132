// A kernel of a target: the tokens of a call in near-equal tiles, against its panels.
#pragma once

#include <type_traits>

#include "base/generic/equal_parts.h"
#include "kernels/cpu/gemm/decoded-inl.h"
#include "kernels/cpu/gemm/tile-inl.h"

namespace moracle::cpu {

// What the tiles of one call share.
template <class V>
class TileCall {
 public:
  explicit TileCall(const GemmArgs& call)
      : call_(call), panel_bytes_(static_cast<std::int64_t>(call.shape.panel_bytes)), args_{call} {}

  // Tokens [first, first + tokens) against the panels from `panel` on.
  const TileArgs& tile(std::int64_t panel, std::int64_t first, std::int64_t tokens) {
    args_.tokens = tokens;
    args_.x = call_.x + first;
    args_.sums = call_.sums + first;
    args_.input_scales = call_.input_scales + first;
    args_.token_scale = call_.token_scale + first;
    for (std::int64_t p = panel; p < call_.count; ++p) {
      args_.panels[p - panel] = call_.panels[p];
      args_.panel_scale[p - panel] = call_.panel_scale[p];
      args_.out[p - panel] = call_.out[p] + first * call_.out_stride;
    }
    args_.prefetch.cached = first != 0;
    const std::byte* const following = panel_behind(panel);
    args_.prefetch.panel_end = call_.panels[panel] + panel_bytes_;
    args_.prefetch.jump = following != nullptr ? following - args_.prefetch.panel_end : 0;
    args_.prefetch.panels = nullptr;
    if (call_.next_count > 0 && !args_.prefetch.cached) {  // each panel prefetches its share of all next ones
      const std::int64_t share = panel_bytes_ / call_.count / 64 * 64;
      for (std::uint64_t i = 0; i < kPrefetchPanels; ++i)
        prefetched_[i] = call_.next[i % static_cast<std::uint64_t>(call_.next_count)] + panel * share;
      args_.prefetch.panels = prefetched_;
    }
    return args_;
  }

  // Of `tiles` tiles that meet a panel one after the other, what the given one prefetches of the next panel: the first
  // nothing, the others as much each.
  void share_next(std::int64_t panel, std::int64_t tile, std::int64_t tiles) {
    if (tile == 0) return;
    const std::byte* const following = panel_behind(panel);
    const std::byte* const next = following != nullptr ? following : call_.panels[panel] + panel_bytes_;
    args_.prefetch.next = next + panel_bytes_ / (tiles - 1) / 64 * 64 * (tile - 1);
    args_.prefetch.next_share = (std::int64_t{1} << kShareBits) / (tiles - 1) + 1;
  }

 private:
  // The panel to be read behind panel p: null where it follows in memory.
  [[nodiscard]] const std::byte* panel_behind(std::int64_t p) const {
    return p + 1 == call_.count ? call_.following : nullptr;
  }

  const GemmArgs& call_;
  const std::int64_t panel_bytes_;
  const std::byte* prefetched_[kPrefetchPanels];
  TileArgs args_;
};

// Panels that a tile of T tokens takes at once, where few tokens interleave panels: as many as the registers hold sums
// for.
template <class D, int T>
constexpr int wide_panels() {
  using V = typename D::Form::V;
  if (!V::kInterleaved || T > kInterleavedTokens) return 1;
  const int panels = V::kRegs > 2 ? (T == 1 ? 2 : 1) : (T == 1 ? 4 : 2);
  const int sums = T * panels * V::kRegs * Accumulators<typename D::Form, T, 1>::kChains;
  return 4 * sums >= 3 * V::kRegisters ? 1 : panels;
}

// Panel by panel, or, where several are read at once, all of them with each tile.
template <class D, ActScaling Scaling, bool Zeros>
void gemm_tiles(const GemmArgs& args) {
  using V = typename D::Form::V;
  TileCall<V> call(args);
  const EqualParts<V> tiles(args.tokens, V::kTileTokens);
  // Tile i against panels from `panel` on, up to `most`; returns how many it takes.
  const auto multiply = [&](std::int64_t i, std::int64_t panel, std::int64_t most) {
    std::int64_t taken = 1;
    with_tokens<1, V::kTileTokens>(tiles.count(i), [&]<int kTokens>(Tokens<kTokens>) {
      constexpr int kWide = wide_panels<D, kTokens>();
      const TileArgs& tile = call.tile(panel, tiles.begin(i), kTokens);
      if (kWide > 1 && most >= kWide) {
        gemm_tile<D, kTokens, kWide, Scaling, Zeros>(tile);
        taken = kWide;
      } else {
        gemm_tile<D, kTokens, 1, Scaling, Zeros>(tile);
      }
    });
    return taken;
  };
  if (V::kInterleaved && args.tokens <= kInterleavedTokens) {
    for (std::int64_t i = 0; i < tiles.size(); ++i) {
      for (std::int64_t p = 0; p < args.count;) p += multiply(i, p, args.count - p);
    }
    return;
  }
  for (std::int64_t p = 0; p < args.count; ++p) {
    for (std::int64_t i = 0; i < tiles.size(); ++i) {
      call.share_next(p, i, tiles.size());
      multiply(i, p, 1);
    }
  }
}

constexpr std::integral_constant<ActScaling, ActScaling::per_token> kPerToken;
constexpr std::integral_constant<ActScaling, ActScaling::per_group> kPerGroup;
constexpr std::integral_constant<ActScaling, ActScaling::running> kRunning;

// The kernel of a decoder, for weights with and without the zero points that its code can have, under the scales that
// what it serves can have: running ones where kernels make activations integers themselves, else those of the scheme.
template <class D, ActivationMask kActivations>
void gemm(const GemmArgs& args) {
  constexpr bool kIntegers = D::Form::Sums::kIntegers;
  const auto under = [&]<ActScaling kScaling>(std::integral_constant<ActScaling, kScaling>) {
    if (args.shape.scaling != kScaling) return;
    if constexpr (has_zero_points(D::kCode)) {
      if (args.shape.zeros) return gemm_tiles<D, kScaling, true>(args);
    }
    gemm_tiles<D, kScaling, false>(args);
  };
  if constexpr (!kIntegers || includes(kActivations, ActivationMask::int8)) {
    under(kPerToken);
    if constexpr (Scaled<D>) under(kPerGroup);
  }
  if constexpr (kIntegers && includes(kActivations, ActivationMask::exact | ActivationMask::fast)) under(kRunning);
}

// For calls of many tokens.
template <class D>
void gemm_decoded(const GemmArgs& args) {
  TileCall<typename D::Form::V> call(args);
  for (std::int64_t p = 0; p < args.count; ++p) gemm_chunks<D>(call.tile(p, 0, args.tokens));
}

// Rows of a target's table.
template <class D>
constexpr GemmKernel kernel_row(ActivationMask activations, std::uint16_t min_tokens, GemmFn run,
                                Groups groups = Groups::any) {
  GemmKernel row{.key = {D::kCode, D::Form::kAct, activations, groups}, .min_tokens = min_tokens, .run = run};
  if constexpr (Scaled<D>) {
    constexpr auto kOffset = static_cast<std::int32_t>(D::kOffset);
    if (D::Form::Sums::kUnsigned || Blocked<typename D::Form>) row.offset = kOffset;
  }
  if constexpr (Blocked<typename D::Form>) row.block_columns = D::Form::kBlockSteps * kStepColumns;
  return row;
}
template <class D, ActivationMask kActivations = kAnyActivations>
constexpr GemmKernel gemm_row(std::uint16_t min_tokens) {
  return kernel_row<D>(kActivations, min_tokens, gemm<D, kActivations>);
}
template <class D, ActivationMask kActivations = kAnyActivations>
constexpr GemmKernel decoded_row(std::uint16_t min_tokens, Groups groups = Groups::any) {
  return kernel_row<D>(kActivations, min_tokens, gemm_decoded<D>, groups);
}

}  // namespace moracle::cpu
