// Sums of all columns: weights are products of codes and scales, rounded to bf16, unless a row has one scale, which its
// sums take. Products follow each other without a wait: a slice becomes fragments while the one before is multiplied.
#pragma once

#include "kernels/cuda/sm90/linear/product_ring.cuh"
#include "kernels/cuda/sm90/linear/terms.cuh"

namespace moracle::cuda {

template <class Plan>
class WholeSums : ProductRing<Plan> {
  using Ring = ProductRing<Plan>;
  using Ring::args_;
  using typename Ring::Code;
  using typename Ring::Form;
  using typename Ring::Fragments;
  using typename Ring::Place;
  using typename Ring::Tile;
  using LaneSums = float[Plan::kTokens / 2];

 public:
  __device__ WholeSums(const ProductArgs& args, std::uint32_t memory) : Ring(args, memory) {}

  __device__ void run() {
    this->open();
    if (threadIdx.x < 128) {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
      if (threadIdx.x == 0) this->produce();
    } else {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
      consume();
    }
  }

 private:
  // Scales and zero points of a tile on its way through its slices.
  struct Walk {
    const LinearMatrix& of;
    bool grouped;  // columns have scales of their own
    TermReader<Code> reader;
    LaneTerms next;  // of the slice that is taken next
  };

  __device__ void consume() const {
    Place at;
    LaneSums sums;
    Fragments fragments[2];
#pragma unroll 1
    for (int item = static_cast<int>(blockIdx.x); item < this->tiles(); item += static_cast<int>(gridDim.x)) {
      const Tile tile = this->tile_of(item);
      const LinearMatrix& of = args_.matrices[tile.part];
      Walk walk{.of = of,
                .grouped = of.matrix.group < of.matrix.padded,
                .reader = TermReader<Code>(of, tile.row + this->own_row(), 0),
                .next = {}};
      walk.next = walk.reader.next(1);
      const LaneTerms first = walk.next;
      take(at, fragments[0], walk);
      const int end = this->end_slice();
#pragma unroll 1
      for (int slice = 0; slice < end; slice += 2) {
        multiply<0>(at, sums, fragments, walk, slice, end);
        if (slice + 1 < end) multiply<1>(at, sums, fragments, walk, slice + 1, end);
      }
      wgmma_wait<0>();
      Ring::settle(sums);
      give_back(this->empty(at.before()), this->lane());
      finish(sums, tile, walk, first);
    }
    Ring::close();
  }

  // The fragments of the stage at `at`, once it is there.
  __device__ __forceinline__ void take(const Place& at, Fragments& to, Walk& walk) const {
    wait_barrier(this->full(at.stage), at.phase);
    if constexpr (Plan::kStored) return;
    const LaneTerms terms = walk.next;
    walk.next = walk.reader.next(1);
    __syncwarp();
    this->take_codes(to, at.stage, terms.zeros);
    if constexpr (Form::kScaled) {
      if (walk.grouped) {
        const float scales[2] = {fetched_scale(walk.of.scale, terms.scales[0]),
                                 fetched_scale(walk.of.scale, terms.scales[1])};
#pragma unroll
        for (int i = 0; i < 16; ++i) {
          std::uint32_t& pair = to[i / 4][i % 4];
          const float scale = scales[i % 2];
          pair = pack_bf16(__uint_as_float(pair << 16) * scale, __uint_as_float(pair & 0xFFFF0000U) * scale);
        }
      }
    }
    Ring::settle(to);
  }

  // Multiplies the slice in fragments[kBuffer], and takes the next one meanwhile.
  template <int kBuffer>
  __device__ __forceinline__ void multiply(Place& at, LaneSums& sums, Fragments (&fragments)[2], Walk& walk, int slice,
                                           int end) const {
    const int before = at.before();
    wgmma_fence();
    this->multiply_slice(sums, fragments[kBuffer], at.stage, slice > 0);
    wgmma_commit();
    at.step();
    wgmma_wait<1>();
    if (slice > 0) arrive_warp(this->empty(before), this->lane());
    if (slice + 1 < end) take(at, fragments[1 - kBuffer], walk);
  }

  // What a row's sums are multiplied by, and where they go. `first`: the terms of the row's first slice.
  __device__ __forceinline__ void finish(LaneSums& sums, const Tile& tile, const Walk& walk,
                                         const LaneTerms& first) const {
    float factors[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      factors[half] = __ldg(reinterpret_cast<const float*>(walk.of.weights + walk.of.matrix.global_scale));
      if (Form::kScaled && !walk.grouped && walk.of.matrix.scales != kAbsent)
        factors[half] *= fetched_scale(walk.of.scale, first.scales[half]);
    }
    if (args_.input_group == 0) {  // a scale a token
#pragma unroll
      for (int i = 0; i < Plan::kTokens / 2; ++i) {
        const int token = tile.token + i / 4 * 8 + this->part() * 2 + i % 2;
        sums[i] *= __ldg(args_.scales + min(token, args_.tokens - 1));
      }
    }
    this->template store<0>(sums, factors, tile);
    if constexpr (Plan::kTokens > Plan::kOutTokens) this->template store<Plan::kOutTokens>(sums, factors, tile);
  }
};

}  // namespace moracle::cuda
