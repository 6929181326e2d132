// Screens of heads (screen.h) on AVX-512.
#include "kernels/cpu/screen.h"

#include <immintrin.h>

namespace moracle::cpu {
namespace {

#include "kernels/cpu/avx512/vectors512.inc"

#include "kernels/cpu/avx512/screen512.inc"

// Sums of 16 bits: of four registers' codes up to 31 by 127, two columns each.
struct Products {
  __m512i sum = _mm512_setzero_si512();
  void add(__m512i codes, __m512i x) { sum = _mm512_add_epi16(sum, _mm512_maddubs_epi16(codes, x)); }
  [[nodiscard]] __m512i quads() const { return _mm512_madd_epi16(sum, _mm512_set1_epi16(1)); }
};

#include "kernels/cpu/screen_body.inc"

inline float lane_sum(V::Reg v) {
  return _mm512_reduce_add_ps(v);
}
inline V::Reg magnitude(V::Reg v) {
  return _mm512_abs_ps(v);
}
inline float largest_lane(V::Reg v) {
  return _mm512_reduce_max_ps(v);
}
inline __m256i bytes_of(const V::Reg (&codes)[2]) {
  const auto bytes = [](V::Reg of) { return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(of)); };
  return _mm256_set_m128i(bytes(codes[1]), bytes(codes[0]));
}

#include "kernels/cpu/screen_pack_body.inc"

}  // namespace

void screen_panels_avx512(const ScreenArgs& args) {
  screen_panels(args);
}

void pack_screen_row_avx512(const ScreenRow& row) {
  pack_screen_row(row);
}

}  // namespace moracle::cpu
