// Screens of heads (screen.h) on AVX-512.
#include "kernels/cpu/screen.h"

#include <immintrin.h>

namespace moracle::cpu {
namespace {

#include "kernels/cpu/avx512/vectors512.inc"

struct RowCodes {
  const std::byte* bytes;
  const std::byte* pairs;

  template <int O>
  __m512i columns(std::int64_t block) const {
    const __m512i five = _mm512_loadu_si512(bytes + block * kScreenBytes);
    if constexpr (O == 0) return _mm512_and_si512(five, _mm512_set1_epi8(0x1F));
    const __m128i once = _mm_loadu_si128(reinterpret_cast<const __m128i*>(pairs + block * kScreenPairs));
    const __m512i places = _mm512_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2, 4, 4, 4, 4, 6, 6, 6, 6);
    const __m512i low = _mm512_srlv_epi32(_mm512_broadcast_i32x4(once), places);
    constexpr int kSelect = 0xCA;  // a ? b : c
    const __m512i codes = _mm512_ternarylogic_epi32(_mm512_set1_epi8(0x03), low, _mm512_srli_epi16(five, 3), kSelect);
    return _mm512_and_si512(codes, _mm512_set1_epi8(0x1F));
  }
};
struct GroupScales {
  __m512 scales;
  explicit GroupScales(__m512 all) : scales(all) {}
  template <int G>
  __m512 of() const {
    return _mm512_permutexvar_ps(_mm512_set1_epi32(G), scales);
  }
};
inline __m512i products(__m512i codes, const std::int8_t* x) {
  return _mm512_maddubs_epi16(codes, _mm512_loadu_si512(x));
}
inline __m512i quads(__m512i sums) {
  return _mm512_madd_epi16(sums, _mm512_set1_epi16(1));
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
