// Screens of heads (screen.h) on AVX-512.
#include "kernels/cpu/screen.h"

#include <immintrin.h>

namespace moracle::cpu {
namespace {

#include "kernels/cpu/avx512/vectors512.inc"

inline __m512i spread_bits(const std::byte* at) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}
// Bit i of a byte to bit 4: of columns 16i in the i-th 128 bits of both registers.
template <int O>
inline __m512i columns(const std::byte* at, __m512i bits) {
  __m512i nibbles = _mm512_loadu_si512(at);
  if constexpr (O == 0) {
    bits = _mm512_sllv_epi32(bits, _mm512_setr_epi32(4, 4, 4, 4, 3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1));
  } else {
    bits = _mm512_srlv_epi32(bits, _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3));
    nibbles = _mm512_srli_epi16(nibbles, 4);
  }
  constexpr int kOrAnd = 0xF8;  // a | b & c
  nibbles = _mm512_and_si512(nibbles, _mm512_set1_epi8(0x0F));
  return _mm512_ternarylogic_epi32(nibbles, bits, _mm512_set1_epi8(0x10), kOrAnd);
}
template <int O>
inline __m512 of_groups(__m128 scales) {
  constexpr int A = 2 * O;
  constexpr int B = 2 * O + 1;
  return _mm512_permutexvar_ps(_mm512_setr_epi32(A, A, A, A, A, A, A, A, B, B, B, B, B, B, B, B),
                               _mm512_castps128_ps512(scales));
}
inline __m512i products(__m512i codes, const std::int8_t* x) {
  return _mm512_madd_epi16(_mm512_maddubs_epi16(codes, _mm512_loadu_si512(x)), _mm512_set1_epi16(1));
}
inline float lane_sum(__m512 v) {
  return _mm512_reduce_add_ps(v);
}

#include "kernels/cpu/screen_body.inc"

}  // namespace

void screen_rows_avx512(const ScreenArgs& args) {
  screen_rows(args);
}

}  // namespace moracle::cpu
