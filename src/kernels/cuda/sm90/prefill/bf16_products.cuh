// Products of bf16: codes become fragments in registers, each under its scale; what comes next is decoded while a
// product is under way.
#pragma once

#include "kernels/cuda/sm90/prefill/plan.cuh"

namespace moracle::cuda {

template <class Plan>
class Bf16Products {
  using Ring = GroupedRing<Plan>;
  using Place = typename Ring::Place;
  using Scales = typename Plan::Scales;
  static constexpr RecordKind kKind = Plan::kKind;
  static constexpr int kHalves = Plan::kHalves;
  static constexpr int kTileCodes = Plan::kTileCodes;
  static constexpr int kBatches = kHalves * Plan::kPanels;  // of four fragments, that a stage has
  // Codes that are fragments: loaded early they would be loaded into those under way.
  static constexpr bool kPlain = kCodeWords<kKind> == 4;

 public:
  using Sum = float;
  using Sums = Sum[kHalves][Plan::kMostRows / 2];
  static constexpr bool kInPlace = true;        // one sum of all columns
  static constexpr float kOutputFactor = 1.0F;  // of sums

  __device__ __forceinline__ Bf16Products(const Ring& ring, int columns) : ring_(ring), columns_(columns) {}

  // The products of a tile of kWidth rows.
  template <int kWidth>
  __device__ __forceinline__ void multiply(Sums& sums, Place& at) const {
    const int stages = (columns_ + Plan::kStageColumns - 1) / Plan::kStageColumns;
    Fragments fragments[2];
    Held held;
    ring_.wait_stage(at);
    load(held, at.stage, 0);
    ScaledWeights<kKind>::decode(fragments[0], held.words, held.scales);
    Place ahead = at;
    if constexpr (kBatches == 1) {
      ahead.step();
      if (stages > 1) ring_.wait_stage(ahead);
    }
    if constexpr (!kPlain) load(held, ahead.stage, kBatches - 1);
#pragma unroll 1
    for (int s = 0; s < stages; s += 3 - kBatches) {
      gemm_batch<kWidth, 0>(sums, fragments, held, at, ahead, s, stages);
      if (kBatches == 2) gemm_batch<kWidth, 1>(sums, fragments, held, at, ahead, s, stages);
      if (kBatches == 1 && s + 1 < stages) gemm_batch<kWidth, 1>(sums, fragments, held, at, ahead, s + 1, stages);
    }
    wgmma_wait<0>();
    // Sums are read behind the wait alone.
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
#pragma unroll
      for (int i = 0; i < kWidth / 2; ++i) asm volatile("" : "+f"(sums[half][i])::"memory");
    }
    give_back(ring_.empty(at.before()), lane_of_warp());
  }
  [[nodiscard]] static __device__ __forceinline__ float number(float sum) { return sum; }

 private:
  // What four fragments of one of the thread's two products are made of.
  struct Held {
    CodeWords<kKind> words;
    uint2 scales;
  };
  __device__ __forceinline__ void load(Held& held, std::uint32_t stage, int batch) const {
    const int panel = batch / kHalves;
    const std::uint32_t tile = static_cast<std::uint32_t>(first_tile_of_warp<kHalves>() + batch % kHalves * 4);
#pragma unroll
    for (int i = 0; i < kCodeWords<kKind>; ++i)
      held.words[i] =
          load_shared_16(ring_.weights_at(stage, panel) + tile * kTileCodes + i * 512 + lane_of_warp() * 16);
    held.scales = Scales::load(ring_.scales_at(stage, panel) + tile * Scales::kBytes, lane_of_warp());
  }

  // The batch of stage `s` that fragments[kBuffer] hold is multiplied, while the next one's are decoded from what is
  // held, and the codes behind those are loaded from stage `ahead`. Behind the last stage what is loaded is not used.
  template <int kWidth, int kBuffer>
  __device__ __forceinline__ void gemm_batch(Sums& sums, Fragments (&fragments)[2], Held& held, Place& at, Place& ahead,
                                             int s, int stages) const {
    constexpr int kBatch = kBatches == 2 ? kBuffer : 0;
    constexpr int kHalf = kBatch % kHalves;
    constexpr int kPanel = kBatch / kHalves;
    const std::uint64_t rows = swizzled_rows(ring_.rows_at(at.stage, kPanel));
    const std::uint32_t before = at.before();
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool adds = i > 0 || kPanel > 0 || s > 0;
      wgmma_bf16<kWidth>(sums[kHalf], fragments[kBuffer][i], rows + i * 2, adds ? 1 : 0);
    }
    wgmma_commit();
    if constexpr (kBatch == kBatches - 1) at.step();
    wgmma_wait<1>();
    // What was multiplied before is done, the last of the stage before among it.
    if (kBatch == 0 && s > 0) arrive_warp(ring_.empty(before), lane_of_warp());
    if constexpr (kPlain) load(held, ahead.stage, kBatches - 1 - kBatch);
    ScaledWeights<kKind>::decode(fragments[1 - kBuffer], held.words, held.scales);
    // They are ready before the next products open.
#pragma unroll
    for (int i = 0; i < 16; ++i) asm volatile("" : "+r"(fragments[1 - kBuffer][i / 4][i % 4])::"memory");
    if constexpr (kBatch == 0) {
      // The fence of this wait also stands between what was loaded of the stage before and its return.
      ahead.step();
      if (s + 3 - kBatches < stages) ring_.wait_stage(ahead);
    }
    if constexpr (!kPlain) load(held, ahead.stage, kBatch);
  }

  const Ring& ring_;
  int columns_;
};

}  // namespace moracle::cuda
