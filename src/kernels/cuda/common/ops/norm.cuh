// A row's norm, by a block of kNormThreads. Rows of the same kind have one order of sums, whoever norms them: where
// four columns may be read at a time a thread has fours, else single ones.
#pragma once

#include "kernels/args/operations.h"
#include "kernels/cuda/common/ops/block.cuh"

namespace moracle::cuda {

inline constexpr int kNormThreads = 256;
inline constexpr int kNormFours = 8;                              // that a thread holds
inline constexpr int kMostFours = 4 * kNormFours * kNormThreads;  // columns of a row that is held

template <class... Pointers>
__device__ __forceinline__ bool by_fours(std::int64_t cols, Pointers... rows) {
  return cols % 4 == 0 && cols <= kMostFours && ((reinterpret_cast<std::uintptr_t>(rows) % 16 == 0) && ...);
}
__device__ __forceinline__ bool by_fours(const AddNormArgs& norm) {
  return by_fours(norm.cols, norm.x, norm.sum, norm.weight, norm.out);
}
__device__ __forceinline__ bool by_fours(const RmsNormArgs& norm) {
  return by_fours(norm.cols, norm.x, norm.weight, norm.out);
}

// The fours of a row that a thread has. `thread`: of kNormThreads.
struct HeldRow {
  float4 fours[kNormFours];

  template <class Take>
  __device__ __forceinline__ void each(int thread, std::int64_t cols, const Take& take) {
#pragma unroll
    for (int i = 0; i < kNormFours; ++i) {
      const int at = thread + i * kNormThreads;
      if (4 * at < cols) take(fours[i], at);
    }
  }
  __device__ __forceinline__ void load(int thread, std::int64_t cols, const float* from) {
    each(thread, cols, [&](float4& four, int at) { four = reinterpret_cast<const float4*>(from)[at]; });
  }
  __device__ __forceinline__ void add(int thread, std::int64_t cols, const float* other) {
    each(thread, cols, [&](float4& four, int at) {
      const float4 more = reinterpret_cast<const float4*>(other)[at];
      four = {four.x + more.x, four.y + more.y, four.z + more.z, four.w + more.w};
    });
  }
  [[nodiscard]] __device__ __forceinline__ float squares(int thread, std::int64_t cols) {
    float sum = 0.0F;
    each(thread, cols, [&](const float4& four, int) {
      sum = fmaf(four.x, four.x, sum);
      sum = fmaf(four.y, four.y, sum);
      sum = fmaf(four.z, four.z, sum);
      sum = fmaf(four.w, four.w, sum);
    });
    return sum;
  }
};

[[nodiscard]] __device__ __forceinline__ float4 scaled(const float4& x, float scale, const float4& weight) {
  return {x.x * scale * weight.x, x.y * scale * weight.y, x.z * scale * weight.z, x.w * scale * weight.w};
}

// `squares`: of the whole row.
[[nodiscard]] __device__ __forceinline__ float scale_of(float squares, std::int64_t cols, float eps) {
  return 1.0F / sqrtf(squares / static_cast<float>(cols) + eps);
}
// `squares`: of a thread's columns.
[[nodiscard]] __device__ __forceinline__ float norm_scale(float squares, std::int64_t cols, float eps) {
  return scale_of(block_sum<kNormThreads>(squares), cols, eps);
}

}  // namespace moracle::cuda
