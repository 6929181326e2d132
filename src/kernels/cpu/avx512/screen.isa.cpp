// Screens of heads (screen.h) on AVX-512.
#include "kernels/cpu/screen.h"

#include <immintrin.h>

namespace moracle::cpu {
namespace {

#include "kernels/cpu/avx512/vectors512.inc"

#include "kernels/cpu/avx512/screen512.inc"

inline __m512i products(__m512i codes, const std::int8_t* x) {
  return _mm512_maddubs_epi16(codes, _mm512_loadu_si512(x));
}
inline __m512i quads(__m512i sums) {
  return _mm512_madd_epi16(sums, _mm512_set1_epi16(1));
}

#include "kernels/cpu/screen_body.inc"

}  // namespace

void screen_rows_avx512(const ScreenArgs& args) {
  screen_rows(args);
}

}  // namespace moracle::cpu
