// Screens of heads (screen.h) with VPDPBUSD.
#include "kernels/cpu/screen.h"

#include <immintrin.h>

namespace moracle::cpu {
namespace {

#include "kernels/cpu/avx512/vectors512.inc"

#include "kernels/cpu/avx512/screen512.inc"

struct Products {
  __m512i sum = _mm512_setzero_si512();
  void add(__m512i codes, __m512i x) { sum = _mm512_dpbusd_epi32(sum, codes, x); }
  [[nodiscard]] __m512i quads() const { return sum; }
};

#include "kernels/cpu/screen_body.inc"

}  // namespace

void screen_panels_vnni(const ScreenArgs& args) {
  screen_panels(args);
}

}  // namespace moracle::cpu
