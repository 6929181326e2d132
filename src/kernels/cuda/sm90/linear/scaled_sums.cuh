// Sums of up to 128 columns, which are scaled and added in f32: codes are exact in bf16.
//
//   consumers two warpgroups of 64 weight rows: a slice becomes fragments in registers while the one before is
//             multiplied
//   cluster   where tiles are few, its blocks share the columns of one: each leaves its sums in shared memory, and they
//             are added in one order
#pragma once

#include <cooperative_groups.h>

#include "kernels/cuda/sm90/linear/product_ring.cuh"
#include "kernels/cuda/sm90/linear/terms.cuh"

namespace moracle::cuda {

template <class Plan>
class ScaledSums : ProductRing<Plan> {
  using Ring = ProductRing<Plan>;
  using Ring::args_;
  using typename Ring::Code;
  using typename Ring::Form;
  using typename Ring::Fragments;
  using typename Ring::Place;
  using typename Ring::Tile;
  static constexpr bool kShares = Plan::kSums == Sums::shared;
  static constexpr int kCount = Plan::kTokens / 2;
  using LaneSums = float[kCount];

 public:
  __device__ ScaledSums(const ProductArgs& args, std::uint32_t memory) : Ring(args, memory) {}

  __device__ void run() {
    this->open();
    if (threadIdx.x < 128) {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
      if (threadIdx.x == 0) this->produce();
      if constexpr (kShares) {
        __syncwarp();
        cooperative_groups::this_cluster().sync();
        cooperative_groups::this_cluster().sync();
      }
    } else {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
      consume();
      if constexpr (kShares) share();
    }
  }

 private:
  // A tile on its way through its slices.
  struct Walk {
    const LinearMatrix& of;
    int token;
    float global;
    int left;  // slices of the fold
    TermReader<Code> reader;
    LaneTerms now;
    LaneTerms next;
  };

  __device__ void consume() const {
    Place at;
    LaneSums parts;
    LaneSums sums;
    Fragments fragments[2];
#pragma unroll 1
    for (int item = static_cast<int>(blockIdx.x); item < this->tiles(); item += static_cast<int>(gridDim.x)) {
      const Tile tile = this->tile_of(item);
      const LinearMatrix& of = args_.matrices[tile.part];
      Walk walk{.of = of,
                .token = tile.token,
                .global = __ldg(reinterpret_cast<const float*>(of.weights + of.matrix.global_scale)),
                .left = args_.fold_slices,
                .reader = TermReader<Code>(of, tile.row + this->own_row(), this->first_slice()),
                .now = {},
                .next = {}};
      walk.now = walk.reader.next(args_.fold_slices);
      walk.next = walk.reader.next(args_.fold_slices);
#pragma unroll
      for (float& sum : sums) sum = 0.0F;
      const int end = this->end_slice();
      if (this->first_slice() < end) take(at, fragments[0], walk.now.zeros);
#pragma unroll 1
      for (int slice = this->first_slice(); slice < end; slice += 2) {
        multiply<0>(at, parts, sums, fragments, walk, slice, end);
        if (slice + 1 < end) multiply<1>(at, parts, sums, fragments, walk, slice + 1, end);
      }
      if constexpr (kShares) {
        this->template put<0>(sums, {1.0F, 1.0F}, {0.0F, 0.0F});
      } else {
        this->template store<0>(sums, {1.0F, 1.0F}, tile);
      }
    }
    Ring::close();
  }

  // The fragments of the stage at `at`, once it is there.
  __device__ __forceinline__ void take(const Place& at, Fragments& to, const std::uint32_t (&zeros)[2]) const {
    wait_barrier(this->full(at.stage), at.phase);
    if constexpr (Plan::kStored) return;
    __syncwarp();
    this->take_codes(to, at.stage, zeros);
    this->settle(to);
  }

  // Multiplies the slice in fragments[kBuffer], and takes the next one meanwhile.
  template <int kBuffer>
  __device__ __forceinline__ void multiply(Place& at, LaneSums& parts, LaneSums& sums, Fragments (&fragments)[2],
                                           Walk& walk, int slice, int end) const {
    const bool opens = walk.left == args_.fold_slices;
    wgmma_fence();
    this->multiply_slice(parts, fragments[kBuffer], at.stage, !opens);
    wgmma_commit();
    const int own = at.stage;
    at.step();
    --walk.left;
    const bool folds = walk.left == 0 || slice + 1 == end;
    const std::uint32_t zeros[2] = {folds ? walk.next.zeros[0] : walk.now.zeros[0],
                                    folds ? walk.next.zeros[1] : walk.now.zeros[1]};
    if (slice + 1 < end) take(at, fragments[1 - kBuffer], zeros);
    wgmma_wait<0>();
    this->settle(parts);
    give_back(this->empty(own), this->lane());
    if (!folds) return;
    fold(parts, sums, walk, slice);
    walk.left = args_.fold_slices;
    walk.now = walk.next;
    walk.next = walk.reader.next(args_.fold_slices);
  }

  // Scales what the columns that end with `slice` have summed.
  __device__ __forceinline__ void fold(const LaneSums& parts, LaneSums& sums, const Walk& walk, int slice) const {
    float scales[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      scales[half] = walk.global;
      if (Form::kScaled && walk.of.matrix.scales != kAbsent)
        scales[half] *= fetched_scale(walk.of.scale, walk.now.scales[half]);
    }
    if (args_.input_group < 0) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) sums[i] = fmaf(parts[i], scales[i / 2 % 2], sums[i]);
      return;
    }
    const int group = args_.input_group == 0 ? 0 : slice * kSlice / args_.input_group;
    const float* const first = args_.scales + group;
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int token = min(walk.token + i * 2 + this->part() * 2 + j, args_.tokens - 1);
        const float input = __ldg(first + static_cast<std::int64_t>(token) * args_.input_groups);
        sums[i + j] = fmaf(parts[i + j], scales[0] * input, sums[i + j]);
        sums[i + j + 2] = fmaf(parts[i + j + 2], scales[1] * input, sums[i + j + 2]);
      }
    }
  }

  // The consumers of each block add its share of the cluster's tile, ranks in their order.
  __device__ void share() const {
    auto cluster = cooperative_groups::this_cluster();
    cluster.sync();
    const Tile tile = this->tile_of(static_cast<int>(blockIdx.x));
    const LinearMatrix& of = args_.matrices[tile.part];
    const auto ranks = static_cast<int>(gridDim.y);
    constexpr int kConsumers = kProductThreads - 128;
    constexpr int kFours = kProductRows / 4;  // of a token
    for (int i = this->rank() * kConsumers + static_cast<int>(threadIdx.x) - 128; i < Plan::kTokens * kFours;
         i += ranks * kConsumers) {
      const int token = tile.token + i / kFours;
      const int row = i % kFours * 4;
      if (token >= args_.tokens || tile.row + row >= of.matrix.rows) continue;
      const std::uint32_t at = this->out_of(0) + static_cast<std::uint32_t>(row / kOutColumns) * Plan::kBoxBytes +
                               this->box_place(i / kFours, row % kOutColumns);
      float4 found[kMostProductRanks];
#pragma unroll
      for (int other = 0; other < kMostProductRanks; ++other)
        found[other] = other < ranks ? load_of_rank(at, other) : float4{};
      float4 sum{this->bias_of(of, tile.row + row), this->bias_of(of, tile.row + row + 1),
                 this->bias_of(of, tile.row + row + 2), this->bias_of(of, tile.row + row + 3)};
#pragma unroll
      for (const float4& each : found) {
        sum.x += each.x;
        sum.y += each.y;
        sum.z += each.z;
        sum.w += each.w;
      }
      // Rows are a multiple of four.
      *reinterpret_cast<float4*>(of.out + static_cast<std::int64_t>(token) * of.matrix.rows + tile.row + row) = sum;
    }
    cluster.sync();  // a block's sums stay until all have read them
  }
  static __device__ __forceinline__ float4 load_of_rank(std::uint32_t at, int rank) {
    std::uint32_t there = 0;
    float4 four;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
                 : "r"(there)
                 : "memory");
    return four;
  }
};

}  // namespace moracle::cuda
