// Sizes of one instance of the streaming kernel, and its shared memory.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "kernels/cuda/common/tile_layout.h"
#include "kernels/cuda/sm90/ptx.cuh"

namespace moracle::cuda {

inline constexpr int kUnitTokens = 8;  // tokens on the n side of one MMA
inline constexpr int kMostSlots = 24;  // of the ring
inline constexpr int kMostUnits = kDecodeExperts + kDecodePairs / kUnitTokens;
// Part of one phase: x W^T with `kCols` columns, two warps a record.
template <RecordKind kKind, int kCols_>
struct PhasePlan {
  static constexpr RecordForm kForm = record_form(kKind);
  static constexpr int kCols = kCols_;
  static constexpr int kRecords = records_of(kForm, kCols);
  static constexpr int kColumns = kCols / kRecords;       // of a record
  static constexpr int kPairs = kColumns / kPairColumns;  // of a record
  static constexpr int kHeld = (kPairs + 1) / 2;          // of a warp
  static constexpr int kWarps = 2 * kRecords;             // that share an item
  static constexpr int kRecordBytes = record_bytes(kForm, kColumns);
  static constexpr int kTailBytes = tail_bytes(kForm);
  static constexpr int kTileBytes = tile_bytes(kForm, kCols);
  static_assert(kCols % kRecords == 0 && kColumns % record_step(kForm) == 0);
  // Whether a warp has no `i`-th 64 columns: an odd record leaves its second half fewer.
  static constexpr bool lacks(int i, int half) { return kPairs % 2 != 0 && i == kHeld - 1 && half != 0; }
  // First column of warp `w` of an item.
  static constexpr int first_column(int w) { return w / 2 * kColumns + w % 2 * kHeld * kPairColumns; }
};

// Rows that blocks pass to each other, in 16-byte words. Where inputs are quantized under scales of their own maxima:
// codes of inputs (kPassesInputs_), then of intermediate rows, each row with its scales behind it, then intermediate
// rows in f32. Else intermediate rows.
template <InputKind kInput, int kHidden, int kIntermediate, bool kPassesInputs_>
struct RowsPlan {
  static constexpr bool kStored = has_stored_scale(kInput);
  static constexpr bool kMeasured = kInput != InputKind::bf16 && !kStored;
  static constexpr bool kGroups = input_group(kInput) > 0;  // of 128 columns
  static constexpr bool kPassesInputs = kMeasured && kPassesInputs_;
  static constexpr int kLineWords = 8;  // of a cache line, where rows begin
  static constexpr int scales_of(int cols) { return !kMeasured ? 0 : kGroups ? cols / 128 : 1; }
  static constexpr int words_of(int cols) {
    return (cols / 8 + (scales_of(cols) + 3) / 4 + kLineWords - 1) / kLineWords * kLineWords;
  }
  static constexpr int kInputWords = kPassesInputs ? words_of(kHidden) : 0;
  static constexpr int kIntermediateWords = words_of(kIntermediate);
  static constexpr int kF32Words = kMeasured ? kIntermediate / 4 : 0;
  static MORACLE_BOTH constexpr int intermediate_at(int tokens) { return tokens * kInputWords; }
  static MORACLE_BOTH constexpr int f32_at(int tokens, int pairs) {
    return intermediate_at(tokens) + pairs * kIntermediateWords;
  }
  static MORACLE_BOTH constexpr int all(int tokens, int pairs) { return f32_at(tokens, pairs) + pairs * kF32Words; }
  static_assert(all(kDecodeTokens, kDecodePairs) <= decode_row_words(kInput, kHidden, kIntermediate));
};

// kWarps consumer warps, behind the producer warp and before kActivationWarps activation warps, for which the sums of
// up to kReductions items may wait.
template <class Code_, int kHidden_, int kIntermediate_, int kTokens_, int kWarps_, int kReductions_,
          InputKind kInput_ = InputKind::bf16>
struct DecodePlan {
  using Code = Code_;
  // Registers of so many warps do not suffice to quantize inputs as they are loaded.
  using Rows = RowsPlan<kInput_, kHidden_, kIntermediate_, (kWarps_ > 12)>;
  static constexpr InputKind kInput = kInput_;
  using Up = PhasePlan<Code::kKind, kHidden_>;
  using Down = PhasePlan<Code::kKind, kIntermediate_>;
  static constexpr float kInputFactor = record_form(Code::kKind).input_factor;
  static constexpr int kHidden = kHidden_;
  static constexpr int kIntermediate = kIntermediate_;
  static constexpr int kTokens = kTokens_;  // most of a call
  static constexpr int kWarps = kWarps_;
  static constexpr int kReductions = kReductions_;
  // One takes as long for an item as consumers do. Where consumers are many no registers are left for a second one.
  static constexpr int kActivationWarps = kWarps > 12 ? 1 : 2;
  static constexpr int kThreads = 32 * (1 + kWarps + kActivationWarps);
  // Registers are short where warps are many, or where inputs are quantized as they are loaded.
  static constexpr bool kSaveRegisters = kWarps > 12 || Rows::kStored;
  // The number, made again where this is called: kept from before it would take registers that are short.
  [[nodiscard]] static __device__ __forceinline__ int rematerialized(int number) {
    if (kSaveRegisters) asm volatile("" : "+r"(number));
    return number;
  }
  static constexpr int kUpGroups = kWarps / Up::kWarps;
  static constexpr int kDownGroups = (kWarps + kActivationWarps) / Down::kWarps;  // activation warps join in phase 2
  static constexpr int kDownWarps = kDownGroups * Down::kWarps;
  static constexpr int kUpTiles = kIntermediate / 8;
  static constexpr int kDownTiles = kHidden / kTileRows;
  static constexpr int kSlotBytes =
      (Up::kRecordBytes > Down::kRecordBytes ? Up::kRecordBytes : Down::kRecordBytes) + Up::kTailBytes;
  static_assert(kUpGroups >= 1 && kReductions % kUpGroups == 0 && kHidden % kTileRows == 0);
  // The sums of a slot are always the same warp's: waiting for a phase before the next one ends at once.
  static_assert(kReductions % kActivationWarps == 0);
  static_assert(kDecodeTokens <= 64 && 2 * (kThreads - 32) >= kDecodePairs && 2 * kThreads >= kDecodeExperts);

  // Beside the ring.
  struct Rest {
    union Sums {
      float4 gate_up[kReductions][Up::kWarps][32];  // of an item's warps, for the activation warp
      float2 down[kDownWarps][kTokens * 8];         // each warp's own, rows g and g + 8 of a token
    } sums;
    std::uint32_t units[kMostUnits];  // expert | first pair << 10 | tokens << 22
    float pair_weights[kDecodePairs];
    std::uint32_t pairs[kDecodePairs];                   // pair | token << 16, by expert
    alignas(16) std::uint32_t marks[kDecodeExperts][2];  // which tokens an expert has, a bit each
    std::int32_t offsets[kDecodeExperts];
    // Intermediate rows of an item of each activation warp, token by token.
    alignas(16) std::conditional_t<Rows::kMeasured, float, std::uint16_t> transposed[kActivationWarps][8][8];
    // The largest magnitudes of a unit's tokens in each warp's columns, of every group of warps, for two turns.
    std::conditional_t<Rows::kMeasured && !Rows::kGroups, float[2][kUpGroups][Up::kWarps][kUnitTokens], float> maxima;
    std::int32_t totals[kThreads / 32];  // of the experts that a warp counts
    std::int32_t unit_count;
    std::uint32_t launch;
    std::uint32_t used;  // words of rows that the launch before wrote
    std::int32_t intermediate_ready;
    std::int32_t repeats;  // a token names an expert twice
    alignas(8) std::uint64_t full[kMostSlots];
    std::uint64_t empty[kMostSlots];
    std::uint64_t sums_full[kReductions];
    std::uint64_t sums_empty[kReductions];
  };
  static constexpr int kRestBytes = (static_cast<int>(sizeof(Rest)) + 127) / 128 * 128;
  // Records under way at most, some 50 KB: phase 2's must not take memory's time from phase 1's. With up to two tokens
  // w2's are fewer before its inputs are there, unless a window has few anyway.
  static constexpr std::uint32_t kWindow = 52 * 1024 / Up::kRecordBytes;
  static constexpr std::uint32_t kEarlyWindow = kWindow < 4 ? kWindow : 2;
  static constexpr int kSlots =
      (kSharedLimit - kRestBytes) / kSlotBytes < kMostSlots ? (kSharedLimit - kRestBytes) / kSlotBytes : kMostSlots;
  static constexpr int kSharedBytes = kRestBytes + kSlots * kSlotBytes;
  // Parity tells a slot's neighbouring phases apart, and no others. So what a slot had before must have landed when a
  // warp waits for its next record: a warp's records lie an item apart, and all but a window before its last one
  // landed.
  static_assert(kSlots >= kUpGroups * Up::kRecords + static_cast<int>(kWindow));
  static_assert(kSlots >= kDownGroups * Down::kRecords + static_cast<int>(kWindow));
};

// How w2's tiles are spread over blocks, made on the host: the kernel would divide where everyone waits for it.
struct TileSchedule {
  std::int32_t whole;         // tiles of each block alone
  std::int32_t halved;        // 1: two blocks share each tile that is left over
  std::int32_t extra_blocks;  // blocks that take one of these
  std::uint32_t inverse;      // of the number of blocks, times 2^32, rounded up
};
inline TileSchedule schedule_tiles(int tiles, int blocks) {
  const int whole = tiles / blocks;
  const int left = tiles % blocks;
  const int halved = whole > 0 && 2 * left <= blocks ? 1 : 0;
  return {whole, halved, left << halved, 0xFFFFFFFFU / static_cast<std::uint32_t>(blocks) + 1};
}

// Arguments of the kernel.
struct DecodeArgs {
  const std::uint8_t* weights;
  std::uint64_t expert_bytes;
  std::uint64_t down;      // offset of w2's first tile
  std::uint64_t up_scale;  // offsets of stored input scales
  std::uint64_t down_scale;
  const float* x;
  const std::int32_t* ids;
  const float* pair_weights;
  float* out;
  GateArgs gate;  // alpha, beta and limit of gated_by_sigmoid
  std::int32_t tokens;
  std::int32_t top_k;
  std::int32_t experts;
  // StreamedExpertsArgs::persistent_scratch.
  std::uint32_t* header;  // complements of: launches, words of rows of the last one, blocks that know
  std::uint64_t* shared_sums;
  uint4* rows;               // two buffers
  std::int64_t rows_buffer;  // words of one
  TileSchedule schedule;
};

}  // namespace moracle::cuda
