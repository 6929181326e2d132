// Screens of heads (screen.h) with VPDPBUSD, one operation where others take two: a core of Zen 4 reads as fast as
// memory gives.
#include "kernels/cpu/screen.h"

#include <immintrin.h>

namespace moracle::cpu {
namespace {

#include "kernels/cpu/avx512/vectors512.inc"

#include "kernels/cpu/avx512/screen512.inc"

inline __m512i products(__m512i codes, const std::int8_t* x) {
  return _mm512_dpbusd_epi32(_mm512_setzero_si512(), codes, _mm512_loadu_si512(x));
}
inline __m512i quads(__m512i sums) {
  return sums;
}

#include "kernels/cpu/screen_body.inc"

}  // namespace

void screen_rows_vnni(const ScreenArgs& args) {
  screen_rows(args);
}

}  // namespace moracle::cpu
