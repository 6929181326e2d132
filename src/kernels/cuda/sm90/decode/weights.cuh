// A fragments of tensor cores from the codes and scales of records (records.h).
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/common/tile_layout.h"
#include "kernels/cuda/sm90/ptx.cuh"

namespace moracle::cuda {

__device__ __forceinline__ std::uint32_t add_bf16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t sum = 0;
  asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
  return sum;
}
__device__ __forceinline__ std::uint32_t fma_bf16x2(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t sum = 0;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}
__device__ __forceinline__ std::uint32_t low_twice(std::uint32_t word) {
  return __byte_perm(word, 0, 0x1010);
}
__device__ __forceinline__ std::uint32_t high_twice(std::uint32_t word) {
  return __byte_perm(word, 0, 0x3232);
}

// A fragments from a lane's word, as far as codes alone go. int4: 128 + code. E2M1: 2^-126 of the number.
__device__ __forceinline__ void decode_int4(std::uint32_t (&a)[4], std::uint32_t word) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(a[i]) : "r"(word >> (4 * i)), "r"(0x000F000FU), "r"(0x43004300U));
  }
}
__device__ __forceinline__ void decode_e2m1(std::uint32_t (&a)[4], std::uint32_t word) {
  constexpr std::uint32_t kMask = 0x81C081C0U;
  a[0] = word & kMask;
  a[1] = word << 3 & kMask;
  a[2] = word << 6 & kMask;
  a[3] = (word << 1 & 0x80008000U) | (word >> 3 & 0x01800180U) | (word >> 7 & 0x00400040U);
}
// Two numbers from the lower bytes of a word's halves: 128 and seven bits, less 256 or, where the highest bit is set,
// 128.
__device__ __forceinline__ std::uint32_t decode_int8(std::uint32_t word) {
  std::uint32_t sum = 0;
  asm("{\n .reg .b32 a, b;\n lop3.b32 a, %1, 0x007F007F, 0x43004300, 0xEA;\n"
      " lop3.b32 b, %1, 0x00800080, 0xC380C380, 0x6A;\n add.rn.bf16x2 %0, a, b;\n}"
      : "=r"(sum)
      : "r"(word));
  return sum;
}
// 2^-120 of two numbers, from the upper bytes.
__device__ __forceinline__ std::uint32_t decode_e4m3(std::uint32_t word) {
  return (word & 0x80008000U) | (word >> 4 & 0x07F007F0U);
}

// E2M1 in nibbles (records.h): magnitudes choose from eight bytes, the rest are signs.
struct Nibbles {
  std::uint32_t magnitudes;  // of row g in the lower half, of row g + 8 in the upper one
  std::uint32_t signs;       // of row g in the highest bits of bytes, of row g + 8 four bits below

  __device__ __forceinline__ explicit Nibbles(std::uint32_t word)
      : magnitudes(word & 0x77777777U), signs(word & 0x88888888U) {}

  // Four bytes of a row, by the bytes that magnitudes 0 to 3 and 4 to 7 stand for.
  template <bool kLower>
  [[nodiscard]] __device__ __forceinline__ std::uint32_t chosen(std::uint32_t low, std::uint32_t high) const {
    // __byte_perm would mask them again.
    std::uint32_t bytes = 0;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(kLower ? magnitudes >> 16 : magnitudes));
    return bytes;
  }
  template <bool kLower>
  [[nodiscard]] __device__ __forceinline__ std::uint32_t with_signs(std::uint32_t bytes) const {
    return (kLower ? signs << 4 : signs) & 0x80808080U | bytes;
  }
};
// The numbers themselves in f16, whose upper byte holds all of one.
__device__ __forceinline__ void decode_nibbles(std::uint32_t (&a)[4], std::uint32_t word) {
  const Nibbles codes(word);
  const auto decode_row = [&]<bool kLower>() {
    const std::uint32_t four = codes.with_signs<kLower>(codes.chosen<kLower>(0x3E3C3800U, 0x46444240U));
    a[kLower ? 1 : 0] = __byte_perm(four, 0, 0x2404);
    a[kLower ? 3 : 2] = four & 0xFF00FF00U;
  };
  decode_row.operator()<false>();
  decode_row.operator()<true>();
}

// A fragments of 16 rows and 64 columns from a lane's kCodeWords x 16 bytes of codes: each code times its scale,
// rounded to bf16. `scales` are those of row g and of row g + 8; scales of whole rows are left to the sums.
template <RecordKind kKind>
struct ScaledWeights;

using Fragments = std::uint32_t[4][4];  // four of 16 columns

template <RecordKind kKind>
inline constexpr int kCodeWords = bits_of(record_form(kKind).code) / 4;  // 16-byte ones of a lane
template <RecordKind kKind>
using CodeWords = uint4[kCodeWords<kKind>];

// A scale that is kept as the sum of two in bf16.
__device__ __forceinline__ float both_parts(std::uint32_t scale) {
  return __uint_as_float(scale << 16) + __uint_as_float(scale & 0xFFFF0000U);
}
// The same while it multiplies codes.
struct SplitScale {
  std::uint32_t first;
  std::uint32_t rest;
  [[nodiscard]] __device__ __forceinline__ std::uint32_t times(std::uint32_t codes) const {
    return fma_bf16x2(codes, first, mul_bf16x2(codes, rest));
  }
};

// int4 under scales of 128 columns, as bf16 numbers twice in a word.
__device__ __forceinline__ void decode_scaled_int4(Fragments& to, uint4 words, std::uint32_t upper,
                                                   std::uint32_t lower) {
  const std::uint32_t four[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    decode_int4(to[i], four[i]);
#pragma unroll
    for (int r = 0; r < 4; ++r) to[i][r] = mul_bf16x2(add_bf16x2(to[i][r], 0xC308C308U), r % 2 == 0 ? upper : lower);
  }
}
template <>
struct ScaledWeights<RecordKind::int4_bf16> {
  static __device__ __forceinline__ void decode(Fragments& to, const uint4 (&words)[1], uint2 scales) {
    decode_scaled_int4(to, words[0], low_twice(scales.x), high_twice(scales.x));
  }
};
// Scales are rounded to bf16: a third instruction a register for what that loses takes 5 to 15 % of a pass.
template <>
struct ScaledWeights<RecordKind::int4_f16> {
  static __device__ __forceinline__ void decode(Fragments& to, const uint4 (&words)[1], uint2 scales) {
    const float2 both = __half22float2(*reinterpret_cast<const __half2*>(&scales.x));
    decode_scaled_int4(to, words[0], pack_bf16(both.x, both.x), pack_bf16(both.y, both.y));
  }
};

// Scales as exponents of bf16 beside mantissas: of row g two blocks of 32 columns, of row g + 8 two blocks.
struct ScaledE2m1 {
  static __device__ __forceinline__ void decode(Fragments& to, uint4 words, const std::uint32_t (&upper)[2],
                                                const std::uint32_t (&lower)[2]) {
    const std::uint32_t four[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      decode_e2m1(to[i], four[i]);
#pragma unroll
      for (int r = 0; r < 4; ++r) to[i][r] = mul_bf16x2(to[i][r], r % 2 == 0 ? upper[i / 2] : lower[i / 2]);
    }
  }
};

// Codes are 2^-126 of their numbers, inputs 2^64 of theirs; so a scale 2^(s - 127) is 2^(s - 65) here. Exact down to
// 2^-62; smaller ones fade into zero. pack_records.cpp refuses scales above 2^65.
template <>
struct ScaledWeights<RecordKind::mxfp4> {
  static __device__ __forceinline__ void decode(Fragments& to, const uint4 (&words)[1], uint2 scales) {
    const std::uint32_t exponents = scales.x + 0x3E3E3E3EU;
    ScaledE2m1::decode(to, words[0], {__byte_perm(exponents, 0, 0x0404) >> 1, __byte_perm(exponents, 0, 0x1414) >> 1},
                       {__byte_perm(exponents, 0, 0x2424) >> 1, __byte_perm(exponents, 0, 0x3434) >> 1});
  }
};

// A lane's columns of 32 are those of one scale. E5M3's exponent counts from kE5m3Bias, bf16's from 127, and 62 are to
// be given back.
template <>
struct ScaledWeights<RecordKind::nvfp4> {
  static __device__ __forceinline__ void decode(Fragments& to, const uint4 (&words)[1], uint2 scales) {
    ScaledE2m1::decode(to, words[0], {widened(scales.x, 0x4040), widened(scales.x, 0x4141)},
                       {widened(scales.x, 0x4242), widened(scales.x, 0x4343)});
  }

 private:
  static __device__ __forceinline__ std::uint32_t widened(std::uint32_t scales, std::uint32_t which) {
    constexpr std::uint32_t kMore = (127 + 62 - kE5m3Bias) << 7;
    return __byte_perm(scales, 0, which) * 16 + (kMore << 16 | kMore);
  }
};

// Codes of 8 bits: a word has the left columns of a fragment in the lower bytes of its halves, the right ones in the
// upper bytes; words alternate between row g and row g + 8.
template <DeviceCode kCode>
__device__ __forceinline__ void decode_8(Fragments& to, const uint4 (&words)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t four[4] = {words[i].x, words[i].y, words[i].z, words[i].w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      to[2 * i + w / 2][w % 2] = kCode == DeviceCode::int8 ? decode_int8(four[w]) : decode_e4m3(four[w] << 8);
      to[2 * i + w / 2][w % 2 + 2] = kCode == DeviceCode::int8 ? decode_int8(four[w] >> 8) : decode_e4m3(four[w]);
    }
  }
}
template <RecordKind kKind>
struct Weights8 {
  static __device__ __forceinline__ void decode(Fragments& to, const uint4 (&words)[2], uint2 scales) {
    constexpr RecordForm kForm = record_form(kKind);
    decode_8<kForm.code>(to, words);
    if constexpr (kForm.group > 0) {
      const SplitScale upper{low_twice(scales.x), high_twice(scales.x)};
      const SplitScale lower{low_twice(scales.y), high_twice(scales.y)};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int r = 0; r < 4; ++r) to[i][r] = (r % 2 == 0 ? upper : lower).times(to[i][r]);
      }
    }
  }
};
template <>
struct ScaledWeights<RecordKind::int8_row> : Weights8<RecordKind::int8_row> {};
template <>
struct ScaledWeights<RecordKind::int8_split> : Weights8<RecordKind::int8_split> {};
template <>
struct ScaledWeights<RecordKind::e4m3_row> : Weights8<RecordKind::e4m3_row> {};
template <>
struct ScaledWeights<RecordKind::e4m3_split> : Weights8<RecordKind::e4m3_split> {};

template <>
struct ScaledWeights<RecordKind::bf16> {
  static __device__ __forceinline__ void decode(Fragments& to, const uint4 (&words)[4], uint2 /*scales*/) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to[i][0] = words[i].x;
      to[i][1] = words[i].y;
      to[i][2] = words[i].z;
      to[i][3] = words[i].w;
    }
  }
};

// Where a lane finds the scales of its rows, from the first of a tile's for 64 or 128 columns.
template <RecordKind kKind>
struct ScalePlace {
  static constexpr RecordForm kForm = record_form(kKind);
  static constexpr int kPairs = kForm.group == 128 ? 2 : 1;  // of 64 columns, that share scales
  static constexpr int kBytes = kForm.group > 0 ? kPairs* kPairColumns / kForm.group* kTileRows* kForm.scale_bytes : 0;

  static __device__ __forceinline__ uint2 load(std::uint32_t first, int lane) {
    if constexpr (kBytes == 0) {
      return make_uint2(0, 0);
    } else if constexpr (kForm.group == 16) {
      return make_uint2(load_shared_4(first + lane / 2 * 4), 0);
    } else if constexpr (kForm.scale_bytes == 4) {
      return load_shared_8(first + lane / 4 * 8);
    } else {
      return make_uint2(load_shared_4(first + lane / 4 * 4), 0);
    }
  }
};

}  // namespace moracle::cuda
