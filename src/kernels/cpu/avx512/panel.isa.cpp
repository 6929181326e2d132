// AVX-512 micro-kernels without BF16: f32 activations, f32 multiply-add.
//
// q4, per 64-byte load of 16 rows x 8 columns: 7 shifts and 8 permutes of a 16-entry f32 table make 8 registers, one a
// column, each used by T multiply-adds. Two FMA units at 512 bits retire two a cycle, the permutes one; so from T = 2
// on the multiply-adds bound the loop, below that the permutes do, at about 8 cycles per 64 bytes.
#include <immintrin.h>

#include "kernels/cpu/panel.h"

namespace moracle::cpu {
namespace {

#include "kernels/cpu/avx512/vectors512.inc"

#include "kernels/cpu/panel_body.inc"

#include "kernels/cpu/avx512/dense512.inc"

struct CodeTable {
  alignas(64) float values[16];
};
constexpr CodeTable kIntegers = {{-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7}};
constexpr CodeTable kE2m1 = {{0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6}};

template <const CodeTable& Table>
struct Nibbles {
  using Input = float;
  static constexpr std::int64_t kBytes = 128;
  static constexpr float kOffset = 8.0F;
  __m512 table = _mm512_load_ps(Table.values);
  template <int T, class Acc>
  void accumulate(Acc& acc, const std::byte* at, const Input* const (&x)[T], std::int64_t column) const {
    __m512i words[2] = {_mm512_loadu_si512(at), _mm512_loadu_si512(at + 64)};
    // Columns outside, registers inside: each broadcast serves both halves at once and dies, so that nothing is
    // spilled.
#pragma GCC unroll 8
    for (int n = 0; n < 8; ++n) {
      const int k = n < 4 ? 2 * n : 2 * (n - 4) + 1;
      // The permute reads the low 4 bits of each lane.
      const __m512 w[2] = {_mm512_permutexvar_ps(words[0], table), _mm512_permutexvar_ps(words[1], table)};
#pragma GCC unroll 6
      for (int t = 0; t < T; ++t) {
        const __m512 value = V::set1(x[t][column + k]);
#pragma GCC unroll 2
        for (int r = 0; r < 2; ++r) {
          __m512& sum = acc.value[t][r][n % chains<T>()];
          sum = V::fma(w[r], value, sum);
        }
      }
      words[0] = _mm512_srli_epi32(words[0], 4);
      words[1] = _mm512_srli_epi32(words[1], 4);
    }
  }
};

using Q4 = Nibbles<kIntegers>;
using E2m1 = Nibbles<kE2m1>;

struct Q8 {
  using Input = float;
  static constexpr std::int64_t kBytes = 256;
  static constexpr float kOffset = 128.0F;
  template <int T, class Acc>
  void accumulate(Acc& acc, const std::byte* at, const Input* const (&x)[T], std::int64_t column) const {
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
#pragma GCC unroll 2
      for (int r = 0; r < 2; ++r) {
        const __m512i words = _mm512_loadu_si512(at + k / 4 * 128 + r * 64);
        const auto up = static_cast<unsigned>(24 - 8 * (k % 4));
        const __m512 w = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(words, up), 24));
#pragma GCC unroll 6
        for (int t = 0; t < T; ++t) {
          __m512& sum = acc.value[t][r][k % chains<T>()];
          sum = V::fma(w, V::set1(x[t][column + k]), sum);
        }
      }
    }
  }
};

struct E4m3 {
  using Input = float;
  static constexpr std::int64_t kBytes = 256;
  template <int T, class Acc>
  void accumulate(Acc& acc, const std::byte* at, const Input* const (&x)[T], std::int64_t column) const {
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
      constexpr unsigned kByte[4] = {0, 2, 1, 3};
#pragma GCC unroll 2
      for (int r = 0; r < 2; ++r) {
        const __m512i words = _mm512_loadu_si512(at + k / 4 * 128 + r * 64);
        const __m512 w = V::e4m3_of(_mm512_srli_epi32(words, 8 * kByte[k % 4]));
#pragma GCC unroll 6
        for (int t = 0; t < T; ++t) {
          __m512& sum = acc.value[t][r][k % chains<T>()];
          sum = V::fma(w, V::set1(x[t][column + k]), sum);
        }
      }
    }
  }
};

struct DenseBf16 {
  using Input = float;
  static constexpr std::int64_t kBytes = 512;
  template <int T, class Acc>
  void accumulate(Acc& acc, const std::byte* at, const Input* const (&x)[T], std::int64_t column) const {
    const __m512i high_half = _mm512_set1_epi32(static_cast<int>(0xFFFF0000U));
#pragma GCC unroll 4
    for (int p = 0; p < 4; ++p) {
#pragma GCC unroll 2
      for (int r = 0; r < 2; ++r) {
        const __m512i words = _mm512_loadu_si512(at + p * 128 + r * 64);
        const __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
        const __m512 odd = _mm512_castsi512_ps(_mm512_and_si512(words, high_half));
#pragma GCC unroll 6
        for (int t = 0; t < T; ++t) {
          __m512& first = acc.value[t][r][2 * p % chains<T>()];
          first = V::fma(even, V::set1(x[t][column + 2 * p]), first);
          __m512& second = acc.value[t][r][(2 * p + 1) % chains<T>()];
          second = V::fma(odd, V::set1(x[t][column + 2 * p + 1]), second);
        }
      }
    }
  }
};

}  // namespace

const PanelOps kAvx512Ops = {
    .q4 = MORACLE_INTEGER_TILES(Q4),
    .q8 = MORACLE_INTEGER_TILES(Q8),
    .e2m1 = MORACLE_FLOAT_TILES(E2m1),
    .e4m3 = MORACLE_FLOAT_TILES(E4m3),
    .bf16 = MORACLE_TILES(multiply_dense, DenseBf16),
    .f16 = MORACLE_TILES(multiply_dense, DenseF16),
    .f32 = MORACLE_TILES(multiply_dense, DenseF32),
    .quantized_input = InputForm::f32,
    .bf16_input = InputForm::f32,
    .to_bf16 = nullptr,
    .activate = activate,
    .weighted_sum = weighted_sum,
};

}  // namespace moracle::cpu
