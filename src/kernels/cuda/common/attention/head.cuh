// One head of one token, by a warp: its norm, clip and rotation.
#pragma once

#include <cstdint>

#include "kernels/args/attention.h"
#include "kernels/cuda/common/layout.h"
#include "kernels/cuda/common/ops/block.cuh"
#include "scheme/codes.h"

namespace moracle::cuda {

__device__ inline float clipped(float x, float clip) {
  // NaN stays.
  return clip == 0.0F ? x : x > clip ? clip : x < -clip ? -clip : x;
}

// One head of one token, by a warp: lane l has numbers l, l + 32, ... All loads come before what needs them.
template <int kMost>
struct HeadNumbers {
  float at[kMost];

  __device__ void load(const float* from, int dims) {
#pragma unroll
    for (int j = 0; j < kMost; ++j) {
      const int i = static_cast<int>(threadIdx.x) % 32 + 32 * j;
      at[j] = i < dims ? from[i] : 0.0F;
    }
  }
  template <class Body>
  __device__ void each(int dims, const Body& body) {
#pragma unroll
    for (int j = 0; j < kMost; ++j) {
      const int i = static_cast<int>(threadIdx.x) % 32 + 32 * j;
      if (i < dims) body(i, at[j]);
    }
  }
};

// What norms and rotates the heads of a token.
template <int kMost>
struct HeadTerms {
  HeadNumbers<kMost> weights;
  HeadNumbers<kMost> cos;
  HeadNumbers<kMost> sin;
  bool norms;

  __device__ void load(const AttentionArgs& args, const NormArgs& norm, std::int64_t token) {
    const auto dims = static_cast<int>(args.shape.head_dim);
    const auto half = static_cast<int>(args.rope.half);
    norms = norm.size == dims;
    if (norms) weights.load(norm.weight, dims);
    cos.load(args.rope.cos + token * half, half);
    sin.load(args.rope.sin + token * half, half);
  }
};

// Pairs of which a lane holds both numbers, kApart of its own apart.
template <int kApart, int kMost>
__device__ __forceinline__ void rotate_own(const HeadTerms<kMost>& terms, HeadNumbers<kMost>& numbers) {
  if constexpr (2 * kApart <= kMost) {
#pragma unroll
    for (int j = 0; j < kApart; ++j) {
      const float first = numbers.at[j];
      const float second = numbers.at[j + kApart];
      numbers.at[j] = first * terms.cos.at[j] - second * terms.sin.at[j];
      numbers.at[j + kApart] = second * terms.cos.at[j] + first * terms.sin.at[j];
    }
  }
}

// `row`: room for a head in shared memory.
template <int kMost>
__device__ __forceinline__ void rotate(const AttentionArgs& args, const HeadTerms<kMost>& terms,
                                       HeadNumbers<kMost>& numbers, float* row) {
  const auto dims = static_cast<int>(args.shape.head_dim);
  const auto half = static_cast<int>(args.rope.half);
  if (half == 0) return;
  if (half == 32) return rotate_own<1>(terms, numbers);
  if (half == 64) return rotate_own<2>(terms, numbers);
  if (half == 128) return rotate_own<4>(terms, numbers);
  numbers.each(dims, [&](int i, float x) { row[i] = x; });
  __syncwarp();
#pragma unroll
  for (int j = 0; j < kMost; ++j) {
    const int i = static_cast<int>(threadIdx.x) % 32 + 32 * j;
    if (i >= half) continue;
    const float first = row[i];
    const float second = row[i + half];
    row[i] = first * terms.cos.at[j] - second * terms.sin.at[j];
    row[i + half] = second * terms.cos.at[j] + first * terms.sin.at[j];
  }
  __syncwarp();
  numbers.each(dims, [&](int i, float& x) { x = row[i]; });
  __syncwarp();
}

// Norm, clip and rotation of queries or keys, of all heads at once. `row`: room for a head in shared memory.
template <int kCount, int kMost>
__device__ void prepare(const AttentionArgs& args, const NormArgs& norm, const HeadTerms<kMost>& terms,
                        HeadNumbers<kMost> (&heads)[kCount], float* row) {
  const auto dims = static_cast<int>(args.shape.head_dim);
  if (terms.norms) {
    float squares[kCount] = {};
#pragma unroll
    for (int i = 0; i < kCount; ++i) heads[i].each(dims, [&](int, float x) { squares[i] += x * x; });
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
#pragma unroll
      for (float& sum : squares) sum += __shfl_xor_sync(~0U, sum, step);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float inverse = rsqrtf(__fdividef(squares[i], static_cast<float>(dims)) + norm.eps);
#pragma unroll
      for (int j = 0; j < kMost; ++j) heads[i].at[j] = terms.weights.at[j] * (heads[i].at[j] * inverse);
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    heads[i].each(dims, [&](int, float& x) { x = clipped(x, args.shape.clip); });
    rotate(args, terms, heads[i], row);
  }
}

// Where a key's and a value's numbers lie in a layer's share of a block.
struct StoredHead {
  std::uint16_t* key;    // [key_row]
  std::uint16_t* value;  // every kHalfPositions
};
inline constexpr int kHalfPositions = static_cast<int>(kKvBlock) / 2;
__device__ inline StoredHead stored_head(const AttentionArgs& args, std::uint32_t block, std::int64_t kv_head,
                                         int slot) {
  const AttentionShape& shape = args.shape;
  const auto row = static_cast<int>(key_row(shape));
  auto* const share = reinterpret_cast<std::uint16_t*>(args.blocks.block(block));
  return {
      share + (kv_head * kKvBlock + slot) * row,
      share + ((shape.kv_heads + kv_head) * 2 + slot / kHalfPositions) * kHalfPositions * row + slot % kHalfPositions};
}

}  // namespace moracle::cuda
