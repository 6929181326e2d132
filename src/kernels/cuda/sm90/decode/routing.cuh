// What every block of the streaming kernel finds out for itself: which experts have tokens, and which.
#pragma once

#include "kernels/cuda/sm90/decode/plan.cuh"

namespace moracle::cuda {

// A unit: an expert with up to 8 of its tokens.
struct DecodeUnit {
  int expert;
  int first;   // into the pairs by expert
  int tokens;  // 1 to 8
  __device__ __forceinline__ explicit DecodeUnit(std::uint32_t packed)
      : expert(static_cast<int>(packed & 1023U)),
        first(static_cast<int>(packed >> 10 & 4095U)),
        tokens(static_cast<int>(packed >> 22)) {}
};
__device__ __forceinline__ std::uint32_t pack_unit(int expert, int first, int tokens) {
  return static_cast<std::uint32_t>(expert) | static_cast<std::uint32_t>(first) << 10 |
         static_cast<std::uint32_t>(tokens) << 22;
}

// A pair, token * top_k + choice, with its token beside it: no division later.
__device__ __forceinline__ int pair_of(std::uint32_t listed) {
  return static_cast<int>(listed & 0xFFFFU);
}
__device__ __forceinline__ int token_of(std::uint32_t listed) {
  return static_cast<int>(listed >> 16);
}

// The pairs that one thread reads, all warps but the first.
template <class Plan>
struct OwnPairs {
  static constexpr int kCount = 2;
  int ids[kCount];  // -1: none, or an expert that is not here
  int tokens[kCount];
  float weights[kCount];

  static __device__ __forceinline__ int pair(int i) {
    return static_cast<int>(threadIdx.x) - 32 + i * (Plan::kThreads - 32);
  }
  __device__ __forceinline__ void read(const DecodeArgs& args) {
    const int pairs = args.tokens * args.top_k;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      ids[i] = -1;
      tokens[i] = 0;
      weights[i] = 0.0F;
      if (threadIdx.x < 32 || pair(i) >= pairs) continue;
      ids[i] = __ldg(args.ids + pair(i));
      weights[i] = __ldg(args.pair_weights + pair(i));
      tokens[i] = pair(i) / args.top_k;
    }
  }
  // Sets the token's bit of each expert. Returns whether a token names an expert twice.
  __device__ __forceinline__ bool mark(const DecodeArgs& args, std::uint32_t (*marks)[2]) {
    bool repeat = false;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (ids[i] < 0 || ids[i] >= args.experts) ids[i] = -1;
      if (ids[i] < 0) continue;
      const std::uint32_t bit = 1U << tokens[i] % 32;
      repeat |= (atomicOr(&marks[ids[i]][tokens[i] / 32], bit) & bit) != 0;
    }
    return repeat;
  }
  // The first choice of an expert takes the weights of all in their order, and the others are none.
  __device__ __forceinline__ void merge(const DecodeArgs& args) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (ids[i] < 0) continue;
      const int first = tokens[i] * args.top_k;
#pragma unroll 1
      for (int other = first; other < first + args.top_k && ids[i] >= 0; ++other) {
        if (other == pair(i) || args.ids[other] != ids[i]) continue;
        if (other < pair(i)) {
          ids[i] = -1;
        } else {
          weights[i] += args.pair_weights[other];
        }
      }
    }
  }
  // Into the list by expert, tokens ascending, so that every block cuts the same units.
  template <class Rest>
  __device__ __forceinline__ void list(Rest& rest) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (ids[i] < 0) continue;
      const std::uint32_t below = (1U << tokens[i] % 32) - 1U;
      const std::uint32_t* const marks = rest.marks[ids[i]];
      const int before = tokens[i] < 32 ? __popc(marks[0] & below) : __popc(marks[0]) + __popc(marks[1] & below);
      rest.pairs[rest.offsets[ids[i]] + before] =
          static_cast<std::uint32_t>(pair(i)) | static_cast<std::uint32_t>(tokens[i]) << 16;
      rest.pair_weights[pair(i)] = weights[i];
    }
  }
};

// Each thread of two experts: none has tokens yet.
template <class Rest>
__device__ __forceinline__ void clear_marks(Rest& rest) {
  if (2 * threadIdx.x < kDecodeExperts) *reinterpret_cast<uint4*>(rest.marks[2 * threadIdx.x]) = make_uint4(0, 0, 0, 0);
}

// Each thread of two experts: where their pairs begin, and their units in the order of experts.
template <class Plan>
__device__ __forceinline__ void scan_experts(typename Plan::Rest& rest) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int expert = 2 * static_cast<int>(threadIdx.x);
  const uint4 marks = expert < kDecodeExperts ? *reinterpret_cast<const uint4*>(rest.marks[expert]) : uint4{};
  const int pairs[2] = {__popc(marks.x) + __popc(marks.y), __popc(marks.z) + __popc(marks.w)};
  const auto units_of = [](int pairs) { return (pairs + kUnitTokens - 1) / kUnitTokens; };
  const int own = pairs[0] + pairs[1] | (units_of(pairs[0]) + units_of(pairs[1])) << 16;
  int through = own;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int before = __shfl_up_sync(0xFFFFFFFFU, through, step);
    if (lane >= step) through += before;
  }
  if (lane == 31) rest.totals[warp] = through;
  __syncthreads();
  through += static_cast<int>(__reduce_add_sync(0xFFFFFFFFU, lane < warp ? rest.totals[lane] : 0));
  int offset = (through - own) & 0xFFFF;
  int unit = (through - own) >> 16;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (pairs[i] == 0) continue;
    rest.offsets[expert + i] = offset;
#pragma unroll 1
    for (int first = 0; first < pairs[i]; first += kUnitTokens)
      rest.units[unit++] = pack_unit(expert + i, offset + first, min(kUnitTokens, pairs[i] - first));
    offset += pairs[i];
  }
  if (threadIdx.x == Plan::kThreads - 1) rest.unit_count = through >> 16;
}

}  // namespace moracle::cuda
