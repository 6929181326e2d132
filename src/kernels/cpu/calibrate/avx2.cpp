// Calibration loops for AVX2 with FMA.
#include <immintrin.h>

#include "kernels/cpu/calibrate/loops-inl.h"

namespace moracle::cpu {
namespace {

struct V {};

// Latency 4 to 5 at two a cycle: twelve chains keep both units busy and fit the sixteen registers.
constexpr int kChains = 12;

void multiply(std::int64_t rounds, float* out) {
  const __m256 factor = _mm256_set1_ps(0.999F);
  const __m256 add = _mm256_set1_ps(0.001F);
  __m256 sum[kChains];
  for (int c = 0; c < kChains; ++c) sum[c] = _mm256_set1_ps(static_cast<float>(c));
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sum[c] = _mm256_fmadd_ps(sum[c], factor, add);
  }
  for (int c = 1; c < kChains; ++c) sum[0] = _mm256_add_ps(sum[0], sum[c]);
  _mm256_storeu_ps(out, sum[0]);
}

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

template <__m256i (*Product)(__m256i sum, __m256i a, __m256i b)>
void multiply_integers(std::int64_t rounds, float* out) {
  const __m256i factor = _mm256_set1_epi8(3);
  const __m256i other = _mm256_set1_epi8(-2);
  __m256i sum[kChains];
  for (int c = 0; c < kChains; ++c) sum[c] = _mm256_set1_epi32(c);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sum[c] = Product(sum[c], factor, other);
  }
  for (int c = 1; c < kChains; ++c) sum[0] = _mm256_add_epi32(sum[0], sum[c]);
  _mm256_storeu_ps(out, _mm256_cvtepi32_ps(sum[0]));
}

}  // namespace

const CalibrationOps kAvx2Calibration{"f32 FMA, 256 bit", kChains * 8 * 2.0, multiply,
                                      read_all<V>,        expand_all4<V>,    expand_all8<V>};
const CalibrationOps kAvx2WordsCalibration{"int16 dot products, 256 bit",
                                           kChains * 16 * 2.0,
                                           multiply_integers<words>,
                                           read_all<V>,
                                           expand_all4<V>,
                                           expand_all8<V>};
const CalibrationOps kAvx2BytesCalibration{"int8 dot products, 256 bit",
                                           kChains * 32 * 2.0,
                                           multiply_integers<bytes>,
                                           read_all<V>,
                                           expand_all4<V>,
                                           expand_all8<V>};

}  // namespace moracle::cpu
