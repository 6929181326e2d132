// Codes widened to f32 on 8 lanes, one column a register.
// 16 registers leave room for tiles of 2 tokens (8 sums); tiles of 3 to 5 take half of a panel's rows at a time.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/weights/codes_common-inl.h"

namespace moracle::cpu::avx2 {

template <class V>
using F32Int4 = ShiftedF32Int4<V>;

// e2m1: the low 3 bits index a table of 8, bit 3 is the sign.
template <class V>
struct F32E2m1 : ScaledCode<WeightCode::e2m1, 0> {
  using Form = F32Form<V>;
  __m256 table = _mm256_setr_ps(0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F);
  __m256 weight(const std::byte* at, int k, int r) const {
    const __m256i words = _mm256_srli_epi32(V::load_int(at + r * 32), 4 * (k / 2 + k % 2 * 4));
    const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(words, _mm256_set1_epi32(8)), 28);
    return _mm256_or_ps(_mm256_permutevar8x32_ps(table, words), _mm256_castsi256_ps(sign));
  }
};

template <class V>
using F32E4m3 = NormalF32E4m3<V>;

template <class V>
struct F32F16 : DenseCode<WeightCode::f16> {
  using Form = F32Form<V>;
  __m256 weight(const std::byte* at, int k, int r) const {
    __m256i words = V::load_int(at + k / 2 * 128 + r * 32);
    words = k % 2 == 0 ? _mm256_and_si256(words, _mm256_set1_epi32(0xFFFF)) : _mm256_srli_epi32(words, 16);
    // 8 lanes whose values fit 16 bits -> 8 f32
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
  }
};

}  // namespace moracle::cpu::avx2
