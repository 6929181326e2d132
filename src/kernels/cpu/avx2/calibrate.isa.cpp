// Calibration loops for AVX2 with FMA.
#include <immintrin.h>

#include "kernels/cpu/calibrate.h"

namespace moracle::cpu {
namespace {

#include "kernels/cpu/calibrate_body.inc"

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

}  // namespace

const CalibrationOps kAvx2Calibration{"f32 FMA, 256 bit", kChains * 8 * 2.0, multiply,
                                      read_all,           expand_all4,       expand_all8};

}  // namespace moracle::cpu
