// What the threads of a block find together. Every thread gets the result; sums have one order.
#pragma once

#include <cstdint>

#include "kernels/cuda/common/mma.cuh"

namespace moracle::cuda {

// A value and its index; the larger value ranks first, of equal ones the lower index. -1: none.
template <class Value>
struct Ranked {
  Value value;
  int index;
};
template <class Value>
__device__ Ranked<Value> better(const Ranked<Value>& a, const Ranked<Value>& b) {
  if (a.index < 0) return b;
  if (b.index < 0) return a;
  return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
}

template <class Value>
__device__ Ranked<Value> warp_best(Ranked<Value> own) {
  for (int step = 16; step > 0; step /= 2) {
    const Ranked<Value> other{__shfl_xor_sync(~0U, own.value, step), __shfl_xor_sync(~0U, own.index, step)};
    own = better(own, other);
  }
  return own;
}

template <int kThreads, class Value>
__device__ Ranked<Value> block_best(Ranked<Value> own) {
  __shared__ Ranked<Value> best[kThreads / 32];
  own = warp_best(own);
  __syncthreads();
  if (threadIdx.x % 32 == 0) best[threadIdx.x / 32] = own;
  __syncthreads();
  for (int warp = 0; warp < kThreads / 32; ++warp) own = better(own, best[warp]);
  return own;
}

template <class Value>
__device__ Value warp_sum(Value value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0U, value, step);
  return value;
}

template <int kThreads, class Value>
__device__ Value block_sum(Value value) {
  __shared__ Value sums[kThreads / 32];
  value = warp_sum(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  Value total{};
  for (int warp = 0; warp < kThreads / 32; ++warp) total += sums[warp];
  return total;
}

// Several sums at once.
template <int kThreads, int kSums>
__device__ void block_sums(float (&values)[kSums]) {
  __shared__ float sums[kThreads / 32][kSums];
#pragma unroll
  for (float& value : values) value = warp_sum(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[threadIdx.x / 32][i] = values[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    values[i] = 0.0F;
    for (int warp = 0; warp < kThreads / 32; ++warp) values[i] += sums[warp][i];
  }
}

// The largest value of a warp, or of a block that holds no other row; NaN wins.
template <int kOfRow>
__device__ __forceinline__ float row_max(float value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value = larger(value, __shfl_xor_sync(~0U, value, step));
  if constexpr (kOfRow == 32) return value;
  constexpr int kWarps = kOfRow / 32;
  __shared__ float most[kWarps];
  if (threadIdx.x % 32 == 0) most[threadIdx.x / 32] = value;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) value = larger(value, most[warp]);
  return value;
}

}  // namespace moracle::cuda
