// Numbers of weights from their codes, as the linears' products take them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/common/arithmetic.h"
#include "kernels/cuda/common/mma.cuh"

namespace moracle::cuda {

// Columns that a warp multiplies at once. A lane takes 16 neighbours of them.
inline constexpr int kSlice = 64;
// Bytes from one token's inputs of a slice to the next one's in shared memory: rows lie in banks of their own.
inline constexpr int kInputStride = 2 * kSlice + 16;

// Codes of a slice in shared memory.
template <class Code>
struct SliceForm {
  static constexpr int kBits = bits_of(Code::kCode);
  static constexpr int kBytes = kSlice * kBits / 8;                   // of a row
  static constexpr int kStride = kBits == 16 ? kBytes + 16 : kBytes;  // rows lie in banks of their own
  static constexpr int kWords = kBits / 2;                            // of 16 columns, a lane's
  static constexpr bool kScaled = kBits <= 8;
};

// A lane's codes of a row.
template <int kWords>
__device__ __forceinline__ void load_words(std::uint32_t (&to)[kWords], const std::uint8_t* from) {
  if constexpr (kWords == 2) {
    const uint2 two = *reinterpret_cast<const uint2*>(from);
    to[0] = two.x;
    to[1] = two.y;
  } else {
#pragma unroll
    for (int i = 0; i < kWords / 4; ++i) {
      const uint4 four = reinterpret_cast<const uint4*>(from)[i];
      to[4 * i] = four.x;
      to[4 * i + 1] = four.y;
      to[4 * i + 2] = four.z;
      to[4 * i + 3] = four.w;
    }
  }
}

// Of two bf16 numbers each. Below capability 9.0 there is a - b as a x 1 + -b alone.
__device__ __forceinline__ std::uint32_t subtract_bf16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t difference = 0;
#if __CUDA_ARCH__ >= 900
  asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(difference) : "r"(a), "r"(b));
#else
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(difference) : "r"(a), "r"(0x3F803F80U), "r"(b ^ 0x80008000U));
#endif
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
  } else if constexpr (Code::kCode == DeviceCode::e2m1) {
    const std::uint32_t codes = words[pair / 4] >> (4 * (pair % 4));
    constexpr std::uint32_t kBias = 0x7E807E80U;  // 2^126, from an exponent's bias of 1 to 127
    return mul_bf16x2((codes & 0x00080008U) << 12U | (codes & 0x00070007U) << 6U, kBias);
  } else if constexpr (Code::kCode == DeviceCode::e4m3) {
    const std::uint32_t high = __byte_perm(words[pair / 2], 0, pair % 2 == 0 ? 0x1404U : 0x3424U);
    constexpr std::uint32_t kBias = 0x7B807B80U;  // 2^120, from an exponent's bias of 7 to 127
    return mul_bf16x2((high & 0x80008000U) | (high & 0x7F007F00U) >> 4U, kBias);
  } else {
    return words[pair];
  }
}

// Adds the products of a slice of 16 kRowTiles weight rows and 8 kTokenTiles tokens, whose inputs lie kInputStride
// apart from `tokens` on, this lane's first. number(tile, half, pair): two of the lane's numbers of row 8 half of the
// tile.
template <int kRowTiles, int kTokenTiles, class Number>
__device__ __forceinline__ void multiply_tokens(float (&parts)[kRowTiles][kTokenTiles][4], const std::uint8_t* tokens,
                                                const Number& number) {
#pragma unroll
  for (int both = 0; both < 2; ++both) {
    std::uint32_t numbers[kRowTiles][2][4];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 8; ++i) numbers[m][i / 4][i % 4] = number(m, i % 2, 4 * both + i / 4 * 2 + i % 4 / 2);
    }
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
      const uint4 from = *reinterpret_cast<const uint4*>(tokens + n * 8 * kInputStride + both * 16);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        const auto& [first, second] = numbers[m];
        multiply_bf16(parts[m][n], first[0], first[1], first[2], first[3], from.x, from.y);
        multiply_bf16(parts[m][n], second[0], second[1], second[2], second[3], from.z, from.w);
      }
    }
  }
}

}  // namespace moracle::cuda
