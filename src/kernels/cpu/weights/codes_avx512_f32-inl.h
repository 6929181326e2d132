// Codes widened to f32 on 16 lanes, one column a register. int4, per 64-byte load of 16 rows x 8 columns: 7 shifts and
// 8 permutes of a 16-entry f32 table.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/weights/codes_common-inl.h"

namespace moracle::cpu::avx512 {

struct F32Codes {
  alignas(64) float values[16];
};
inline constexpr F32Codes kInt4AsF32 = {{-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7}};
inline constexpr F32Codes kE2m1AsF32 = {{0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6}};

template <class V, WeightCode kOfCode, const F32Codes& Table>
struct F32Nibbles : ScaledCode<kOfCode, 8> {
  using Form = F32Form<V>;
  __m512 table = _mm512_load_ps(Table.values);
  __m512 weight(const std::byte* at, int k, int r) const {
    const auto nibble = static_cast<unsigned>(k / 2 + k % 2 * 4);
    // The permute reads the low 4 bits of each lane.
    return _mm512_permutexvar_ps(_mm512_srli_epi32(_mm512_loadu_si512(at + r * 64), 4 * nibble), table);
  }
};

template <class V>
using F32Int4 = F32Nibbles<V, WeightCode::int4, kInt4AsF32>;
template <class V>
using F32E2m1 = F32Nibbles<V, WeightCode::e2m1, kE2m1AsF32>;

template <class V>
using F32E4m3 = NormalF32E4m3<V>;

// One convert a column.
template <class V>
struct F32F16 : DenseCode<WeightCode::f16> {
  using Form = F32Form<V>;
  __m512 weight(const std::byte* at, int k, int r) const {
    const __m512i words = _mm512_loadu_si512(at + k / 2 * 128 + r * 64);
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(k % 2 == 0 ? words : _mm512_srli_epi32(words, 16)));
  }
};

}  // namespace moracle::cpu::avx512
