// Calibration loops for AVX-512 VNNI.
//
// Compiled on x86_64 with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mavx512vnni
#include <immintrin.h>

#include "kernels/calibrate/loops-inl.h"
#include "kernels/cpu/simd/avx512.h"

namespace moracle::cpu {
namespace {

struct V : Avx512<V> {};

inline __m512i bytes(__m512i sum, __m512i a, __m512i b) {
  return _mm512_dpbusd_epi32(sum, a, b);
}
inline __m512i words(__m512i sum, __m512i a, __m512i b) {
  return _mm512_dpwssd_epi32(sum, a, b);
}

}  // namespace

const CalibrationOps kAvx512VnniCalibration = dot_calibration<V, bytes>("int8 dot products, 512 bit", 64);
const CalibrationOps kAvx512VnniWordsCalibration = dot_calibration<V, words>("int16 dot products, 512 bit", 32);

}  // namespace moracle::cpu
