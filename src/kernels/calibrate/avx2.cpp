// Calibration loops for AVX2 with FMA.
//
// Compiled on x86_64 with -mavx2 -mfma -mf16c
#include <immintrin.h>

#include "kernels/calibrate/loops-inl.h"
#include "kernels/cpu/simd/avx2.h"

namespace moracle::cpu {
namespace {

struct V : Avx2<V> {};

// Instructions, since a compiler would take a product of constants out of the loop.
inline __m256i words(__m256i sum, __m256i a, __m256i b) {
  __m256i product;
  __asm__ volatile("vpmaddwd %2, %3, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(a), "x"(b));
  return sum;
}
inline __m256i bytes(__m256i sum, __m256i a, __m256i b) {
  __m256i product;
  __asm__ volatile("vpmaddubsw %2, %3, %1\n\tvpaddw %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(a), "x"(b));
  return sum;
}

}  // namespace

const CalibrationOps kAvx2Calibration{"f32 FMA, 256 bit", kChains * 8 * 2.0, fma_chains<V>,
                                      read_all<V>,        expand_all4<V>,    expand_all8<V>};
const CalibrationOps kAvx2WordsCalibration = dot_calibration<V, words>("int16 dot products, 256 bit", 16);
const CalibrationOps kAvx2BytesCalibration = dot_calibration<V, bytes>("int8 dot products, 256 bit", 32);

}  // namespace moracle::cpu
