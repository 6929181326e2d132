// Calibration loops for AVX-VNNI.
//
// Compiled on x86_64 with -mavx2 -mfma -mf16c -mavxvnni
#include <immintrin.h>

#include "kernels/calibrate/loops-inl.h"
#include "kernels/cpu/simd/avx2.h"

namespace moracle::cpu {
namespace {

struct V : Avx2<V> {};

inline __m256i bytes(__m256i sum, __m256i a, __m256i b) {
  return _mm256_dpbusd_avx_epi32(sum, a, b);
}
inline __m256i words(__m256i sum, __m256i a, __m256i b) {
  return _mm256_dpwssd_avx_epi32(sum, a, b);
}

}  // namespace

const CalibrationOps kAvxVnniCalibration = dot_calibration<V, bytes>("int8 dot products, 256 bit", 32);
const CalibrationOps kAvxVnniWordsCalibration = dot_calibration<V, words>("int16 dot products, 256 bit", 16);

}  // namespace moracle::cpu
