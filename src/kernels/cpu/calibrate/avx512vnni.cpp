// Calibration loops for AVX-512 VNNI.
#include <immintrin.h>

#include "kernels/cpu/calibrate/loops-inl.h"

namespace moracle::cpu {
namespace {

struct V {};

// Latency 5 at up to two a cycle: twelve chains cover it.
constexpr int kChains = 12;

inline __m512i bytes(__m512i sum, __m512i a, __m512i b) {
  return _mm512_dpbusd_epi32(sum, a, b);
}
inline __m512i words(__m512i sum, __m512i a, __m512i b) {
  return _mm512_dpwssd_epi32(sum, a, b);
}

template <__m512i (*Product)(__m512i sum, __m512i a, __m512i b)>
void multiply(std::int64_t rounds, float* out) {
  const __m512i factor = _mm512_set1_epi8(3);
  const __m512i other = _mm512_set1_epi8(-2);
  __m512i sum[kChains];
  for (int c = 0; c < kChains; ++c) sum[c] = _mm512_set1_epi32(c);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sum[c] = Product(sum[c], factor, other);
  }
  for (int c = 1; c < kChains; ++c) sum[0] = _mm512_add_epi32(sum[0], sum[c]);
  _mm512_storeu_ps(out, _mm512_cvtepi32_ps(sum[0]));
}

}  // namespace

const CalibrationOps kAvx512VnniCalibration{
    "int8 dot products, 512 bit", kChains * 64 * 2.0, multiply<bytes>, read_all<V>, expand_all4<V>, expand_all8<V>};
const CalibrationOps kAvx512VnniWordsCalibration{
    "int16 dot products, 512 bit", kChains * 32 * 2.0, multiply<words>, read_all<V>, expand_all4<V>, expand_all8<V>};

}  // namespace moracle::cpu
