// Calibration loops for AVX-512 BF16.
//
// Compiled on x86_64 with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c
// Compiled on x86_64 with -mavx512vbmi -mavx512bf16
#include <immintrin.h>

#include "kernels/calibrate/loops-inl.h"

namespace moracle::cpu {
namespace {

struct V {};

void dot_chains_bf16(std::int64_t rounds, float* out) {
  const __m512bh factor = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5F), _mm512_set1_ps(-0.5F));
  const __m512bh other = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.25F), _mm512_set1_ps(0.25F));
  __m512 sum[kChains];
  for (int c = 0; c < kChains; ++c) sum[c] = _mm512_set1_ps(static_cast<float>(c));
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sum[c] = _mm512_dpbf16_ps(sum[c], factor, other);
  }
  for (int c = 1; c < kChains; ++c) sum[0] = _mm512_add_ps(sum[0], sum[c]);
  _mm512_storeu_ps(out, sum[0]);
}

}  // namespace

const CalibrationOps kAvx512Bf16Calibration{
    "bf16 dot products, 512 bit", kChains * 32 * 2.0, dot_chains_bf16, read_all<V>, expand_all4<V>, expand_all8<V>};

}  // namespace moracle::cpu
