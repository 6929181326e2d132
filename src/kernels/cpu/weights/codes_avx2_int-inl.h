// Codes to bytes and words on 8 lanes: integer activations, sums in integers.
// 16 bits: VPMADDWD multiplies two columns a lane by unsigned words, whose offset sums of the activations take back.
// 8-bit weights under 8-bit activations go the same way, since their products fill 16 bits.
// 8 bits by nibbles: VPMADDUBSW multiplies four columns a lane and leaves two sums of 16 bits. With minus the offset
// times the sum of the activations they are signed sums, whatever wrapped around before: of 64 columns of int4
// (8 x 127 x 32 < 2^15) or 32 of the doubled E2M1 numbers (12 x 127 x 16).
#pragma once

#include <immintrin.h>

#include "kernels/cpu/gemm/blocked-inl.h"
#include "kernels/cpu/weights/codes_common-inl.h"

namespace moracle::cpu::avx2 {

// Multiply-adds are written as instructions: GCC reorders integer additions, (a + b) + (c + d), and spills the products
// that it keeps for it. One chain of sums: an addition takes one cycle.

// Two columns a lane, in 16 bits.
template <class V>
struct Int16Form : IntegerForm<V, std::int16_t> {
  using Sums = UnsignedSums<V>;
  static constexpr ActDtype kAct = ActDtype::i16;
  static __m256i madd(__m256i w, __m256i x, __m256i sum) {
    __m256i product;
    __asm__("vpmaddwd %2, %3, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(w), "x"(x));
    return sum;
  }
  static __m256i multiply(__m256i w, __m256i x) {
    __m256i product;
    __asm__("vpmaddwd %1, %2, %0" : "=x"(product) : "x"(w), "x"(x));
    return product;
  }
};

// Four columns a lane, in bytes; signed sums of so many steps fit 16 bits.
template <class V, int Steps>
struct Int8Form : IntegerForm<V, std::int8_t> {
  using Sums = SignedSums<V>;  // blocks take the offset back
  static constexpr ActDtype kAct = ActDtype::i8;
  static constexpr int kBlockSteps = Steps;
  static __m256i multiply(__m256i w, __m256i x) {
    __m256i product;
    __asm__("vpmaddubsw %2, %1, %0" : "=x"(product) : "x"(w), "x"(x));
    return product;
  }
  static __m256i add(__m256i a, __m256i b) { return _mm256_add_epi16(a, b); }
  static __m256i madd(__m256i w, __m256i x, __m256i sum) {
    __m256i product;
    __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(w), "x"(x));
    return sum;
  }
  static __m256i start(const void* const* sums, std::int64_t t, std::int64_t block) {
    return V::broadcast_lane(static_cast<const std::int32_t*>(sums[t]) + block);
  }
  static __m256i widened(__m256i sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }
};

template <class V>
using I8Int4 = ByteInt4<Int8Form<V, 8>>;
template <class V>
using I8E2m1 = ByteE2m1<Int8Form<V, 4>, kDoubledE2m1Plus12, 12>;

// Nibble k of every word.
template <class V>
inline __m256i nibble_words(const std::byte* at, int k, int r) {
  const __m256i words = V::load_int(at + r * 32);
  if (k == 3) return _mm256_srli_epi16(words, 12);
  return _mm256_and_si256(k == 0 ? words : _mm256_srli_epi16(words, 4 * k), _mm256_set1_epi16(0x0F));
}
template <class V>
struct I16Int4 : ScaledCode<WeightCode::int4, 8> {
  using Form = Int16Form<V>;
  __m256i weight(const std::byte* at, int k, int r) const { return nibble_words<V>(at, k, r); }
};

// A word's high byte is zero, for which the table has 12: 256 times that comes to every number, and the offset takes it
// back.
template <class V>
struct I16E2m1 : ScaledCode<WeightCode::e2m1, 12 + 256 * 12, 2> {
  using Form = Int16Form<V>;
  __m256i table = V::table(kDoubledE2m1Plus12.of);
  __m256i weight(const std::byte* at, int k, int r) const { return V::lookup(table, nibble_words<V>(at, k, r)); }
};

// For groups of 16 that many tokens meet: a word is twice the number, and bytes of a lookup serve two slots.
template <class V>
struct I16ShortE2m1 : I16E2m1<V> {
  static constexpr bool kSigned = true;
  __m256i weight(const std::byte* at, int k, int r) const {
    const __m256i numbers = V::lookup(V::table(kDoubledE2m1.of), nibble_bytes<V>(at, k % 2 == 1, r));
    return _mm256_srai_epi16(k < 2 ? _mm256_slli_epi16(numbers, 8) : numbers, 8);
  }
};

// Columns 0 and 2 of a lane, then 1 and 3.
template <class V>
struct I16Int8 : ScaledCode<WeightCode::int8, 128> {
  using Form = Int16Form<V>;
  __m256i weight(const std::byte* at, int k, int r) const {
    const __m256i stored = V::load_int(at + k / 2 * 128 + r * 32);
    const __m256i codes = _mm256_xor_si256(stored, _mm256_set1_epi8(static_cast<char>(0x80)));
    return k % 2 == 1 ? _mm256_srli_epi16(codes, 8) : _mm256_and_si256(codes, _mm256_set1_epi16(0xFF));
  }
};

}  // namespace moracle::cpu::avx2
