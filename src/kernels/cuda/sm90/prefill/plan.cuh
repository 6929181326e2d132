// What a block of grouped products has in shared memory and registers.
#pragma once

#include "kernels/cuda/sm90/decode/weights.cuh"
#include "kernels/cuda/sm90/prefill/list.cuh"
#include "kernels/cuda/sm90/wgmma.cuh"

namespace moracle::cuda {

inline constexpr int kMostStages = 8;
inline constexpr int kTileWeights = kTileTiles * kTileRows;  // weight rows

// kHalves products of 64 weight rows a warpgroup.
template <RecordKind kKind_, Operand kOperand_, int kHalves_>
struct GroupedPlan {
  static constexpr RecordKind kKind = kKind_;
  static constexpr Operand kOperand = kOperand_;
  static constexpr int kHalves = kHalves_;
  static constexpr RecordForm kForm = record_form(kKind);
  using Scales = ScalePlace<kKind>;
  static constexpr bool kBytes = kOperand != Operand::bf16;
  // Scales of inputs are those of 128 columns, and come with each stage.
  static constexpr bool kInputScales = kOperand == Operand::e4m3 && kKind == RecordKind::e4m3_split;
  // Whose cards have E4M3 under a stored scale.
  static constexpr bool kCodesHidden =
      kOperand == Operand::e4m3 && (kKind == RecordKind::e4m3_row || kKind == RecordKind::mxfp4_row);
  // Of 64 columns, that a stage of the ring has; two where a panel is little work for what barriers cost, and few bytes
  // of the ring. The last may lie behind the columns, and is zero.
  static constexpr int kPanels = kBytes || (kHalves == 1 && bits_of(kForm.code) == 4) ? 2 : 1;
  static constexpr int kStageColumns = kPanels * kPairColumns;
  static constexpr bool kSharedScales = kPanels > 1 && kPanels == Scales::kPairs;  // lie with the first panel
  static constexpr int kColumnBytes = code_bytes(kForm, 1);
  static constexpr int kTileCodes = kColumnBytes * kPairColumns;  // of a panel
  static constexpr int kMostRows = kHalves == 2 ? kMostTileRows : kFewTileRows;
  // Of a panel: codes of all tiles, their scales, and those of inputs.
  static constexpr int kWeightBytes = kTileTiles * (kTileCodes + Scales::kBytes);
  static constexpr int kPanelWeightBytes = kWeightBytes + (kInputScales ? kMostRows * 4 : 0);
  static constexpr int kGroups = kTileWeights / (64 * kHalves);
  static constexpr int kThreads = 128 * (1 + kGroups);
  static constexpr int kProducerRegisters = kHalves == 2 ? 56 : 64;
  static constexpr int kConsumerRegisters = kHalves == 2 ? 224 : 104;
  // What a block starts with is all that its warpgroups can have: one that asks for more waits for ever.
  static constexpr int kStartRegisters = 65536 / kThreads / 8 * 8;
  static_assert(kProducerRegisters + kGroups * kConsumerRegisters <= (1 + kGroups) * kStartRegisters);
  static constexpr int kInputBytes = kBytes ? 1 : 2;                        // of a column
  static constexpr int kRowBytes = kMostRows * kPairColumns * kInputBytes;  // of a panel
  static constexpr int kStageBytes = kPanels * (kRowBytes + kPanelWeightBytes);
  // Of finished rows, a warpgroup's columns; 16 more, so that eight rows lie in banks of their own.
  static constexpr int kStoredRowBytes = 128 * kHalves + 16;
  static constexpr int kStoredBytes = kMostRows * kStoredRowBytes;
  static constexpr int kItemBytes = kBytes ? kThreads * 4 : 0;
  static constexpr int kRest = 1024 + 2 * kMostStages * 8 + kItemBytes + kGroups * kStoredBytes;
  static constexpr int kFit = (kSharedLimit - kRest) / kStageBytes;
  static constexpr int kStages = kFit < kMostStages ? kFit : kMostStages;
  static constexpr int kShared = kRest + kStages * kStageBytes;
};

// Ring of stages, for one side of it.
template <int kStages>
struct RingPlace {
  std::uint32_t stage = 0;
  std::uint32_t phase = 0;
  __device__ __forceinline__ void step() {
    if (++stage < kStages) return;
    stage = 0;
    phase ^= 1U;
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t before() const { return stage == 0 ? kStages - 1 : stage - 1; }
};

// Addresses of the ring in shared memory.
template <class Plan>
struct GroupedRing {
  using Place = RingPlace<Plan::kStages>;
  static constexpr int kStages = Plan::kStages;

  std::uint32_t base;

  [[nodiscard]] __device__ __forceinline__ std::uint32_t rows_at(std::uint32_t stage, int panel) const {
    return base + (stage * Plan::kPanels + panel) * Plan::kRowBytes;
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t weights_at(std::uint32_t stage, int panel) const {
    return base + kStages * Plan::kPanels * Plan::kRowBytes + (stage * Plan::kPanels + panel) * Plan::kPanelWeightBytes;
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t scales_at(std::uint32_t stage, int panel) const {
    return weights_at(stage, Plan::kSharedScales ? 0 : panel) + kTileTiles * Plan::kTileCodes;
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t input_scales_at(std::uint32_t stage) const {
    return weights_at(stage, 0) + Plan::kWeightBytes;
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t full(std::uint32_t stage) const {
    return base + kStages * Plan::kStageBytes + 8 * stage;
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t empty(std::uint32_t stage) const {
    return full(stage) + 8 * kStages;
  }
  // A word of each thread, that waits beside products.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t item_at(unsigned thread) const {
    return empty(kStages) + thread * 4;
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t stored_at(int group) const {
    return empty(kStages) + Plan::kItemBytes + group * Plan::kStoredBytes;
  }
  __device__ __forceinline__ void wait_stage(const Place& at) const {
    wait_barrier(full(at.stage), at.phase);
    fence_proxy_async();
  }
};

// Of a consumer's thread.
__device__ __forceinline__ int consumer_group() {
  return static_cast<int>(threadIdx.x / 128) - 1;
}
__device__ __forceinline__ int warp_of_group() {
  return static_cast<int>(threadIdx.x / 32 % 4);
}
__device__ __forceinline__ int lane_of_warp() {
  return static_cast<int>(threadIdx.x % 32);
}
// Of 16 weight rows, for the warp's first product; the second is four tiles behind.
template <int kHalves>
__device__ __forceinline__ int first_tile_of_warp() {
  return consumer_group() * 4 * kHalves + warp_of_group();
}

}  // namespace moracle::cuda
