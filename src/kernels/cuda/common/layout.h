// How keys, values and latents lie in blocks of the device, and what attention takes of its workspace. The host and the
// kernels share it.
//
// A layer's share of a block has, in bf16, keys as [kv_heads, 64, key_row], then values as [kv_heads, 2, key_row, 32]:
// the fragments of both products are 16 bytes in a row, and half a block is in one piece. Latents are [64, latent_row].
// Behind a key's or a latent's numbers are zeros; the rows of values that are beyond head_dim hold anything.
//
// A sequence of one token is attended to in sections of kSectionPositions, counted from position 0, which the blocks of
// a cluster take in turns. How many blocks there are follows the number of sequences, unless one order is asked for.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/args/attention.h"
#include "kernels/args/delta_rule.h"
#include "kernels/args/latent_attention.h"
#include "kernels/args/sample.h"

namespace moracle::cuda {

inline constexpr std::int64_t kSectionPositions = 128;
inline constexpr std::int64_t kSplits = 16;  // of grouped queries: blocks of a cluster at most
inline constexpr std::int64_t kLatentSplits = 16;
// Sequences whose splits are in the workspace at a time.
inline constexpr std::int64_t kSplitSpans = 64;
// Tokens whose absorbed queries are in the workspace at a time.
inline constexpr std::int64_t kLatentTokens = 256;
inline constexpr std::int64_t kMostHeadDim = 256;
inline constexpr std::int64_t kMostGroup = 16;  // query heads of a key head
inline constexpr std::int64_t kMostRank = 512;
inline constexpr std::int64_t kMostLatentRow = 576;
inline constexpr std::int64_t kMostKeyDim = 256;  // of the delta rule

constexpr std::int64_t up_to(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Numbers of a row.
constexpr std::int64_t key_row(const AttentionShape& shape) {
  return up_to(shape.head_dim, 32);
}
constexpr std::int64_t latent_row(const LatentAttentionShape& shape) {
  return up_to(shape.latent_width(), 32);
}
// Bytes of a layer's share of a block.
constexpr std::int64_t share_bytes(const AttentionShape& shape) {
  return 2 * shape.kv_heads * kKvBlock * key_row(shape) * std::int64_t{sizeof(std::uint16_t)};
}
constexpr std::int64_t share_bytes(const LatentAttentionShape& shape) {
  return kKvBlock * latent_row(shape) * std::int64_t{sizeof(std::uint16_t)};
}

// Arrays of a workspace one after the other, each from a multiple of 256 bytes on.
class WorkspaceLayout {
 public:
  constexpr std::size_t take(std::int64_t bytes) {
    const std::size_t at = used_;
    used_ += static_cast<std::size_t>(up_to(bytes, 256));
    return at;
  }
  [[nodiscard]] constexpr std::size_t bytes() const { return used_; }

 private:
  std::size_t used_ = 0;
};

constexpr std::int64_t lesser(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

// What splits leave, of up to kSplitSpans sequences, `heads` rows each.
struct SplitWork {
  std::size_t counters;  // int32 [sequences, heads]: blocks of a row tile that are done
  std::size_t sums;      // f32 [sequences, heads, splits, width], not divided by the sum of exponentials
  std::size_t stats;     // f32 [sequences, heads, splits, 2]: maximum in powers of two, sum

  static constexpr SplitWork lay_out(WorkspaceLayout& layout, std::int64_t tokens, std::int64_t heads,
                                     std::int64_t splits, std::int64_t width) {
    const std::int64_t rows = lesser(tokens, kSplitSpans) * heads;
    SplitWork work{};
    work.counters = layout.take(tokens * heads * std::int64_t{sizeof(std::int32_t)});
    work.sums = layout.take(rows * splits * width * std::int64_t{sizeof(float)});
    work.stats = layout.take(rows * splits * 2 * std::int64_t{sizeof(float)});
    return work;
  }
};

// Of sequences of one token on GPUs without clusters: blocks share the sections of a sequence and key head, and leave
// their sums in the workspace.
inline constexpr std::int64_t kSplitBlocks = 512;  // up to which sequences are split
struct AttentionWork {
  SplitWork splits;
  std::size_t bytes;

  static constexpr AttentionWork lay_out(const AttentionArgs& args) {
    const AttentionShape& shape = args.shape;
    const std::int64_t rows = kSplitBlocks * (shape.heads / shape.kv_heads);
    WorkspaceLayout layout;
    AttentionWork work{};
    work.splits.counters = layout.take(args.tokens * shape.kv_heads * std::int64_t{sizeof(std::int32_t)});
    work.splits.sums = layout.take(rows * shape.head_dim * std::int64_t{sizeof(float)});
    work.splits.stats = layout.take(rows * 2 * std::int64_t{sizeof(float)});
    work.bytes = layout.bytes();
    return work;
  }
};

struct LatentWork {
  SplitWork splits;
  std::size_t queries;   // bf16 [kLatentTokens, heads, latent_row]: absorbed
  std::size_t attended;  // f32 [kLatentTokens, heads, kv_lora_rank]
  std::size_t bytes;

  static constexpr LatentWork lay_out(const LatentAttentionArgs& args) {
    const LatentAttentionShape& shape = args.shape;
    const std::int64_t rows = lesser(args.tokens, kLatentTokens) * shape.heads;
    WorkspaceLayout layout;
    LatentWork work{};
    work.splits = SplitWork::lay_out(layout, args.tokens, shape.heads, kLatentSplits, shape.kv_lora_rank);
    work.queries = layout.take(rows * latent_row(shape) * std::int64_t{sizeof(std::uint16_t)});
    work.attended = layout.take(rows * shape.kv_lora_rank * std::int64_t{sizeof(float)});
    work.bytes = layout.bytes();
    return work;
  }
};

inline constexpr std::int64_t kDeltaChunk = 64;     // tokens that the delta rule takes by products
inline constexpr std::int64_t kLeastChunked = 128;  // tokens of a sequence that is taken so
inline constexpr std::int64_t kMostChunkDim = 128;  // of keys
// Chunks that calls of so many tokens have at most; none where sequences are walked token by token.
constexpr std::int64_t delta_chunks(const DeltaRuleArgs& args) {
  if (args.batch_invariant != 0 || args.shape.key_dim > kMostChunkDim || args.tokens < kLeastChunked) return 0;
  return args.tokens / kDeltaChunk + args.tokens / kLeastChunked;  // a last one of each sequence is not full
}

struct DeltaWork {
  std::size_t beta;       // f32 [tokens, value_heads]
  std::size_t decay;      // the same
  std::size_t log_decay;  // the same
  std::size_t inverses;   // f32 [chunks, value_heads, kDeltaChunk, kDeltaChunk]
  std::size_t weights;    // the same
  std::size_t decays;     // f32 [chunks, value_heads, kDeltaChunk]: sums of logarithms
  std::size_t bytes;

  static constexpr DeltaWork lay_out(const DeltaRuleArgs& args) {
    const std::int64_t size = args.tokens * args.shape.value_heads * std::int64_t{sizeof(float)};
    const std::int64_t rows = delta_chunks(args) * args.shape.value_heads * kDeltaChunk * std::int64_t{sizeof(float)};
    WorkspaceLayout layout;
    DeltaWork work{};
    work.beta = layout.take(size);
    work.decay = layout.take(size);
    work.log_decay = layout.take(size);
    work.inverses = layout.take(rows * kDeltaChunk);
    work.weights = layout.take(rows * kDeltaChunk);
    work.decays = layout.take(rows);
    work.bytes = layout.bytes();
    return work;
  }
};

inline constexpr std::int64_t kSamplePiece = 8192;  // logits that one block of threads looks through
struct SamplePiece {
  double key;          // what its best is ranked by
  std::int32_t index;  // -1: none
  std::int32_t bad;    // a number of it is NaN or +infinity
};
constexpr std::int64_t sample_pieces(std::int64_t vocab) {
  return up_to(vocab, kSamplePiece) / kSamplePiece;
}

struct SampleWork {
  std::size_t pieces;  // SamplePiece [rows, sample_pieces(vocab)]
  std::size_t logits;  // f32 [rows, vocab]: what penalties, biases and masks made of them
  std::size_t sorted;  // TokenLogit [rows, most_candidates], ids ascending
  std::size_t bytes;

  static constexpr SampleWork lay_out(const SampleArgs& args) {
    const std::int64_t vocab = args.logits != nullptr ? args.vocab : 0;
    WorkspaceLayout layout;
    SampleWork work{};
    work.pieces = layout.take(args.rows * sample_pieces(vocab) * std::int64_t{sizeof(SamplePiece)});
    work.logits = layout.take(args.rows * vocab * std::int64_t{sizeof(float)});
    work.sorted = layout.take(std::int64_t{args.rows} * args.most_candidates * std::int64_t{sizeof(TokenLogit)});
    work.bytes = layout.bytes();
    return work;
  }
};

}  // namespace moracle::cuda
