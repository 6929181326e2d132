// Scales of weights by row and group, as linears read them.
#pragma once

#include <cuda_fp16.h>

#include "kernels/cuda/common/arithmetic.h"

namespace moracle::cuda {

// What __umulhi multiplies by to divide a column, below 65536, exactly.
constexpr std::uint32_t reciprocal(std::int64_t divisor) {
  return static_cast<std::uint32_t>(((std::int64_t{1} << 32) + divisor - 1) / divisor);
}
inline constexpr int kMostColumns = 65535;

// The bits of a scale as they are stored: what waits for them is their use.
__device__ __forceinline__ std::uint32_t fetch_scale(DeviceScale type, const std::uint8_t* scales, std::int64_t at) {
  if (type == DeviceScale::bf16 || type == DeviceScale::f16)
    return __ldg(reinterpret_cast<const std::uint16_t*>(scales) + at);
  if (type == DeviceScale::f32) return __ldg(reinterpret_cast<const std::uint32_t*>(scales) + at);
  return __ldg(scales + at);
}
// Those of 16 and 32 bits without a jump.
__device__ __forceinline__ float fetched_scale(DeviceScale type, std::uint32_t bits) {
  if (type == DeviceScale::e4m3 || type == DeviceScale::e8m0)
    return decode_scale(type, reinterpret_cast<const std::uint8_t*>(&bits), 0);
  const float plain = __uint_as_float(type == DeviceScale::bf16 ? bits << 16U : bits);
  const float half = __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
  return type == DeviceScale::f16 ? half : plain;
}

}  // namespace moracle::cuda
