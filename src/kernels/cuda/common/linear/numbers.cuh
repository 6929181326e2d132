// Numbers of weights from their codes, as the linears' products take them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/common/arithmetic.h"
#include "kernels/cuda/common/mma.cuh"

namespace moracle::cuda {

// Columns that a warp multiplies at once. A lane takes 16 neighbours of them.
inline constexpr int kSlice = 64;

// Codes of a slice in shared memory.
template <class Code>
struct SliceForm {
  static constexpr int kBits = bits_of(Code::kCode);
  static constexpr int kBytes = kSlice * kBits / 8;                   // of a row
  static constexpr int kStride = kBits == 16 ? kBytes + 16 : kBytes;  // rows lie in banks of their own
  static constexpr int kWords = kBits / 2;                            // of 16 columns, a lane's
  static constexpr bool kScaled = kBits <= 8;
};

__device__ __forceinline__ std::uint32_t subtract_bf16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t difference = 0;
  asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(difference) : "r"(a), "r"(b));
  return difference;
}

// Two of a lane's 16 numbers of a row, exact: of columns 2 pair and 2 pair + 1, of 4-bit codes as they are interleaved.
template <class Code>
__device__ __forceinline__ std::uint32_t number_pair(const std::uint32_t (&words)[SliceForm<Code>::kWords], int pair,
                                                     std::uint32_t zero) {
  if constexpr (Code::kCode == DeviceCode::int4) {
    constexpr std::uint32_t kOnes = 0x43004300U;  // 128, of which codes are the last bits
    return subtract_bf16x2((words[pair / 4] >> (4 * (pair % 4)) & 0x000F000FU) | kOnes, kOnes | zero * 0x10001U);
  } else if constexpr (Code::kCode == DeviceCode::int8) {
    const std::uint32_t word = words[pair / 2];
    const auto first = 0x7440U + static_cast<unsigned>(pair % 2 * 2);
    const float from = 0x1p23F + static_cast<float>(zero);
    return pack_bf16(__uint_as_float(__byte_perm(word, 0x4B000000U, first)) - from,
                     __uint_as_float(__byte_perm(word, 0x4B000000U, first + 1)) - from);
  } else if constexpr (Code::kCode == DeviceCode::e4m3) {
    const std::uint32_t high = __byte_perm(words[pair / 2], 0, pair % 2 == 0 ? 0x1404U : 0x3424U);
    constexpr std::uint32_t kBias = 0x7B807B80U;  // 2^120, from an exponent's bias of 7 to 127
    return mul_bf16x2((high & 0x80008000U) | (high & 0x7F007F00U) >> 4U, kBias);
  } else {
    return words[pair];
  }
}

}  // namespace moracle::cuda
