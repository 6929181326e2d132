// Calibration loops for AVX-512.
#include <immintrin.h>

#include "kernels/cpu/calibrate/loops-inl.h"

namespace moracle::cpu {
namespace {

struct V {};

// Latency 4 at up to two a cycle: twelve chains cover it.
constexpr int kChains = 12;

void multiply(std::int64_t rounds, float* out) {
  const __m512 factor = _mm512_set1_ps(0.999F);
  const __m512 add = _mm512_set1_ps(0.001F);
  __m512 sum[kChains];
  for (int c = 0; c < kChains; ++c) sum[c] = _mm512_set1_ps(static_cast<float>(c));
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sum[c] = _mm512_fmadd_ps(sum[c], factor, add);
  }
  for (int c = 1; c < kChains; ++c) sum[0] = _mm512_add_ps(sum[0], sum[c]);
  _mm512_storeu_ps(out, sum[0]);
}

}  // namespace

const CalibrationOps kAvx512Calibration{"f32 FMA, 512 bit", kChains * 16 * 2.0, multiply,
                                        read_all<V>,        expand_all4<V>,     expand_all8<V>};

}  // namespace moracle::cpu
