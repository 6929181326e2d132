// Screens of heads (screen.h) on AVX-512.
#include "kernels/cpu/screen.h"

#include <immintrin.h>

namespace moracle::cpu {
namespace {

#include "kernels/cpu/avx512/vectors512.inc"

struct RowCodes {
  const std::byte* nibbles;
  const std::byte* bits;

  // Bit i of a byte goes to bit 4: of columns 16i in the i-th 128 bits of both registers.
  template <int O>
  __m512i columns(std::int64_t block) const {
    __m512i low = _mm512_loadu_si512(nibbles + block * kScreenNibbles);
    const __m128i once = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bits + block * kScreenBits));
    __m512i fifth = _mm512_broadcast_i32x4(once);
    if constexpr (O == 0) {
      fifth = _mm512_sllv_epi32(fifth, _mm512_setr_epi32(4, 4, 4, 4, 3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1));
    } else {
      fifth = _mm512_srlv_epi32(fifth, _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3));
      low = _mm512_srli_epi16(low, 4);
    }
    constexpr int kOrAnd = 0xF8;  // a | b & c
    low = _mm512_and_si512(low, _mm512_set1_epi8(0x0F));
    return _mm512_ternarylogic_epi32(low, fifth, _mm512_set1_epi8(0x10), kOrAnd);
  }
};
struct GroupScales {
  __m512 scales;
  explicit GroupScales(__m512 all) : scales(all) {}
  template <int G>
  __m512 of() const {
    constexpr int H = G + 1;
    return _mm512_permutexvar_ps(_mm512_setr_epi32(G, G, G, G, G, G, G, G, H, H, H, H, H, H, H, H), scales);
  }
};
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
