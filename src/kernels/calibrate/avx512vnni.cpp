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

const CalibrationOps kAvx512VnniCalibration{"int8 dot products, 512 bit",
                                            kChains * 64 * 2.0,
                                            dot_chains<V, bytes>,
                                            read_all<V>,
                                            expand_all4<V>,
                                            expand_all8<V>};
const CalibrationOps kAvx512VnniWordsCalibration{"int16 dot products, 512 bit",
                                                 kChains * 32 * 2.0,
                                                 dot_chains<V, words>,
                                                 read_all<V>,
                                                 expand_all4<V>,
                                                 expand_all8<V>};

}  // namespace moracle::cpu
