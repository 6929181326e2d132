// The experts of a layer.
#pragma once

#include <cstddef>

#include "kernels/args/matrix.h"

namespace moracle {

enum class GateFn : std::int32_t { silu, gelu_tanh, swigluoai, swiglustep };
struct GateArgs {
  GateFn fn;
  float alpha;
  float beta;
  float limit;
};
static_assert(kPlain<GateArgs>);

// The routed experts of one layer, and one call of them. out[tokens, hidden] = sum over a token's choices, in their
// order, of weight * w2(act(w13 x)). Ids outside [0, experts) contribute nothing.
struct RoutedExperts {
  PackArgs pack;
  MatrixArgs gate;
  MatrixArgs up;
  MatrixArgs down;
  GateArgs activation;
  std::int32_t experts;
  std::int32_t tokens;
  std::int32_t top_k;
  // Variants of the layer's input: 0 one for each token, 1 one for each pair, 2 one for each pair and each of gate and
  // up.
  std::int32_t input_variants;
  std::int32_t batch_invariant;  // else the order of a sum may follow the number of tokens
  const float* x;                // [tokens, hidden]
  const std::int32_t* ids;       // [tokens, top_k]
  const float* weights;          // [tokens, top_k]
  float* out;                    // [tokens, hidden]
  // Scratch: a token's choice of an expert is a pair, which these sort by expert.
  std::int32_t* offsets;  // [experts + 1]
  std::int32_t* pairs;    // [tokens * top_k]
  std::int32_t* inverse;  // [tokens * top_k]
};
static_assert(kPlain<RoutedExperts>);

// Over packs whose rows lie one after the other. What follows `routed` is scratch.
struct ExpertsArgs {
  RoutedExperts routed;
  std::int32_t* tiles;     // [2 * most_tiles(pairs, experts, kFewTileRows) + 1]
  std::uint16_t* x_codes;  // bf16, of all parts and variants
  float* x_scales;
  float* h;  // [tokens * top_k, intermediate]
  std::uint16_t* h_codes;
  float* h_scales;
  float* y;  // [tokens * top_k, hidden]
};
static_assert(kPlain<ExpertsArgs>);

// Over packs in records. What follows `routed` is scratch.
struct StreamedExpertsArgs {
  RoutedExperts routed;
  std::int32_t* tiles;     // [4 * (1 + most_row_tiles)]
  std::uint16_t* x_codes;  // bf16, or bytes in them
  float* x_scales;         // of quantized inputs, as all of these in f32
  float* h;                // [tokens * top_k, intermediate]
  std::uint16_t* h_codes;
  float* h_scales;
  std::uint16_t* y;      // bf16 [tokens * top_k, hidden]
  std::int32_t* counts;  // [pair_shares, experts]
  // Persistent scratch of decode_scratch_bytes(row_words), all ones before the first call, one for all layers of a
  // model: its row_words are those of the layer that takes most. Null: no pass in a single launch.
  std::byte* persistent_scratch;
  std::int64_t row_words;
};
static_assert(kPlain<StreamedExpertsArgs>);
inline constexpr std::int32_t kPairTileRows = 64;
inline constexpr std::int32_t kFewTileRows = 16;  // where experts have few
inline constexpr std::int32_t kMostExperts = 4096;

// What one pass in a single launch (cuda/sm90/decode) serves; see cuda/sm90/prefill for larger calls.
inline constexpr std::int32_t kDecodeTokens = 64;
inline constexpr std::int32_t kDecodePairs = 512;
inline constexpr std::int32_t kDecodeExperts = 512;
// Persistent scratch of that pass: a header, sums of output tiles that two blocks share, and the rows of two calls, of
// so many 16-byte words each.
inline constexpr std::size_t kDecodeHeaderBytes = 256;
inline constexpr std::size_t kDecodeSharedSums = 128;                                                         // tiles
inline constexpr std::size_t kDecodeRowsAt = kDecodeHeaderBytes + kDecodeSharedSums * kDecodeTokens * 8 * 8;  // bytes
constexpr std::size_t decode_scratch_bytes(std::int64_t row_words) {
  return kDecodeRowsAt + std::size_t{2} * static_cast<std::size_t>(row_words) * 16;
}
constexpr std::int64_t decode_row_words_in(std::size_t scratch_bytes) {
  return static_cast<std::int64_t>((scratch_bytes - kDecodeRowsAt) / 32);
}

// Larger calls over packs in records (cuda/sm90/prefill): blocks that sort pairs, and tiles of 64 or 128 of them.
inline constexpr std::int32_t kPairsAShare = 2048;
constexpr std::int64_t pair_shares(std::int64_t pairs) {
  return (pairs + kPairsAShare - 1) / kPairsAShare;
}
constexpr std::int64_t most_row_tiles(std::int64_t pairs, std::int64_t experts) {
  return (pairs < experts ? pairs : experts) + pairs / 64;
}

// Tiles of `rows` pairs of one expert, at most.
constexpr std::int64_t most_tiles(std::int64_t pairs, std::int64_t experts, std::int64_t rows) {
  return (pairs < experts ? pairs : experts) + pairs / rows;
}

}  // namespace moracle
