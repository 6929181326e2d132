// A kernel of a target: the tokens of a call in near-equal tiles.
#pragma once

#include <type_traits>

#include "base/generic/equal_parts.h"
#include "kernels/cpu/gemm/decoded-inl.h"
#include "kernels/cpu/gemm/tile-inl.h"

namespace moracle::cpu {

// The tokens of a call, tile by tile.
template <class D, ActScaling Scaling, bool Zeros>
void gemm_tiles(const GemmArgs& args) {
  using V = typename D::Form::V;
  const auto panel_bytes = static_cast<std::int64_t>(args.shape.panel_bytes);
  const std::byte* const panel_end = args.panel + panel_bytes;
  const std::byte* const next = args.following != nullptr ? args.following : panel_end;
  TileArgs tile{args};
  tile.prefetch = {.panel_end = panel_end, .jump = next - panel_end};
  const EqualParts<V> tiles(args.tokens, V::kTileTokens);
  for (std::int64_t i = 0; i < tiles.size(); ++i) {
    const std::int64_t first = tiles.begin(i);
    tile.tokens = tiles.count(i);
    tile.x = args.x + first;
    tile.sums = args.sums + first;
    tile.input_scales = args.input_scales + first;
    tile.token_scale = args.token_scale + first;
    tile.out = args.out + first * args.out_stride;
    if (i > 0) {  // the first tile prefetches its own panel, the others the next one, as much each
      const std::int64_t others = tiles.size() - 1;
      tile.prefetch.cached = true;
      tile.prefetch.next = next + panel_bytes / others / 64 * 64 * (i - 1);
      tile.prefetch.next_share = (std::int64_t{1} << kShareBits) / others + 1;
    }
    with_tokens<1, V::kTileTokens>(tile.tokens,
                                   [&]<int kTokens>(Tokens<kTokens>) { gemm_tile<D, kTokens, Scaling, Zeros>(tile); });
  }
}

constexpr std::integral_constant<ActScaling, ActScaling::per_token> kPerToken;
constexpr std::integral_constant<ActScaling, ActScaling::per_group> kPerGroup;
constexpr std::integral_constant<ActScaling, ActScaling::running> kRunning;

// The kernel of a decoder, for weights with and without the zero points that its code can have, under the scales that
// what it serves can have: running ones where kernels make activations integers themselves, else those of the scheme.
template <class D, Serves kServes>
void gemm(const GemmArgs& args) {
  constexpr bool kIntegers = D::Form::Sums::kIntegers;
  const auto under = [&]<ActScaling kScaling>(std::integral_constant<ActScaling, kScaling>) {
    if (args.shape.scaling != kScaling) return;
    if constexpr (has_zero_points(D::kCode)) {
      if (args.shape.zeros) return gemm_tiles<D, kScaling, true>(args);
    }
    gemm_tiles<D, kScaling, false>(args);
  };
  if constexpr (!kIntegers || includes(kServes, Serves::int8)) {
    under(kPerToken);
    if constexpr (Scaled<D>) under(kPerGroup);
  }
  if constexpr (kIntegers && includes(kServes, Serves::exact | Serves::fast)) under(kRunning);
}

// Rows of a target's table.
template <class D>
constexpr GemmKernel kernel_row(Serves serves, std::uint16_t min_tokens, GemmFn run) {
  GemmKernel row{.key = {D::kCode, D::Form::kAct, serves}, .min_tokens = min_tokens, .run = run};
  if constexpr (Scaled<D>) {
    constexpr auto kOffset = static_cast<std::int32_t>(D::kOffset);
    if (D::Form::Sums::kUnsigned || Blocked<typename D::Form>) row.offset = kOffset;
  }
  if constexpr (Blocked<typename D::Form>) row.block_columns = D::Form::kBlockSteps * kStepColumns;
  return row;
}
template <class D, Serves kServes = kAnyActivations>
constexpr GemmKernel gemm_row(std::uint16_t min_tokens) {
  return kernel_row<D>(kServes, min_tokens, gemm<D, kServes>);
}
template <class D, Serves kServes = kAnyActivations>
constexpr GemmKernel decoded_row(std::uint16_t min_tokens) {
  return kernel_row<D>(kServes, min_tokens, gemm_chunks<D>);
}

}  // namespace moracle::cpu
