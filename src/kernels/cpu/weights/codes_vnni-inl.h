// Codes to bytes and words on 16 lanes, for AVX-512 VNNI: integer activations, sums in 32-bit integers.
// 8-bit activations: VPDPBUSD multiplies unsigned weights, four columns a lane, whose offset (8, 128, or 12 for the
// doubled E2M1 numbers) sums of the activations take back. A nibble lane yields columns 0, 4, 1, 5 under a mask and
// 2, 6, 3, 7 after a shift, the order of the activations. 16-bit activations: VPDPWSSD, two columns a lane.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/weights/codes_common-inl.h"

namespace moracle::cpu::avx512 {

// Multiply-adds are written as instructions: GCC 12 copies each sum before and after an intrinsic in a loop, and spills
// where tiles are large: 585 GOP/s instead of 800 at 6 tokens on a core of Zen 5.

// Four columns a lane, in bytes.
template <class Simd>
struct Int8Form : IntegerForm<Simd, std::int8_t> {
  using Sums = UnsignedSums<Simd>;
  static constexpr ActDtype kAct = ActDtype::i8;
  static constexpr int chains(int tokens) { return tokens <= 2 ? 2 : 1; }  // integer sums have no order
  static __m512i madd(__m512i w, __m512i x, __m512i sum) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
    return sum;
  }
};

// Two columns a lane, in 16 bits.
template <class Simd>
struct Int16Form : IntegerForm<Simd, std::int16_t> {
  using Sums = SignedSums<Simd>;
  static constexpr ActDtype kAct = ActDtype::i16;
  static constexpr int chains(int tokens) { return tokens <= 2 ? 2 : 1; }
  static __m512i madd(__m512i w, __m512i x, __m512i sum) {
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
    return sum;
  }
};

template <class V>
using I8Int4 = ByteInt4<Int8Form<V>>;
template <class V>
using I8Int8 = ByteInt8<Int8Form<V>>;
template <class V>
using I8E2m1 = ByteE2m1<Int8Form<V>, kDoubledE2m1Plus12, 12>;

inline constexpr WordTable kInt4AsInt16{{-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7}};
inline constexpr WordTable kE2m1AsInt16{{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}};

template <class V, WeightCode kOfCode, const WordTable& kTable, int kUnitsOfOne = 1>
struct I16Nibbles : ScaledCode<kOfCode, 8, kUnitsOfOne> {
  using Form = Int16Form<V>;
  __m512i table = _mm512_load_si512(kTable.of);
  __m512i weight(const std::byte* at, int k, int r) const {
    const __m512i words = _mm512_loadu_si512(at + r * 64);
    return _mm512_permutexvar_epi16(k == 0 ? words : _mm512_srli_epi16(words, static_cast<unsigned>(4 * k)), table);
  }
};
template <class V>
using I16Int4 = I16Nibbles<V, WeightCode::int4, kInt4AsInt16>;
template <class V>
using I16E2m1 = I16Nibbles<V, WeightCode::e2m1, kE2m1AsInt16, 2>;

// Columns 0 and 2 of a lane, then 1 and 3.
template <class V>
struct I16Int8 : ScaledCode<WeightCode::int8, 128> {
  using Form = Int16Form<V>;
  __m512i weight(const std::byte* at, int k, int r) const {
    const __m512i words = _mm512_loadu_si512(at + k / 2 * 128 + r * 64);
    return _mm512_srai_epi16(k % 2 == 0 ? _mm512_slli_epi16(words, 8) : words, 8);
  }
};

}  // namespace moracle::cpu::avx512
