// The loops around matrix products, on 16 lanes, for kernels that take bf16.
//
// Compiled on x86_64 with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c
// Compiled on x86_64 with -mavx512vbmi -mavx512bf16
#include "kernels/cpu/simd/avx512.h"

#include "kernels/cpu/ops/activation_kernels.h"

namespace moracle::cpu {

void to_bf16_avx512bf16(const float* in, std::uint16_t* out, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                        reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_loadu_ps(in + i))));
  }
  if (i < count) {
    const auto mask = static_cast<__mmask16>((1U << static_cast<unsigned>(count - i)) - 1U);
    const __m256i tail = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, in + i)));
    _mm256_mask_storeu_epi16(out + i, mask, tail);
  }
}

}  // namespace moracle::cpu
