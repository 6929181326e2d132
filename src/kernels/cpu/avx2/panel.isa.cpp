// AVX2 micro-kernels: f32 activations, f32 FMA, 8 lanes.
//
// Four registers hold the 32 rows of a panel. 16 registers in all leave room for tiles of 2 tokens (8 sums) beside the
// decoded weights; longer tiles keep their sums in memory near the core, which still saves decoding. q4 costs shift,
// mask and convert per column and register, so decode is bound by these three at about 12 cycles per 32 bytes.
#include <immintrin.h>

#include "kernels/cpu/panel.h"

namespace moracle::cpu {
namespace {

struct V {
  using Reg = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kRegs = 4;
  static Reg zero() { return _mm256_setzero_ps(); }
  static Reg set1(float v) { return _mm256_set1_ps(v); }
  static Reg load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Reg v) { _mm256_storeu_ps(p, v); }
  static Reg add(Reg a, Reg b) { return _mm256_add_ps(a, b); }
  static Reg sub(Reg a, Reg b) { return _mm256_sub_ps(a, b); }
  static Reg mul(Reg a, Reg b) { return _mm256_mul_ps(a, b); }
  static Reg div(Reg a, Reg b) { return _mm256_div_ps(a, b); }
  static Reg min(Reg a, Reg b) { return _mm256_min_ps(a, b); }
  static Reg max(Reg a, Reg b) { return _mm256_max_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
  static Reg round(Reg a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static Reg pow2(Reg n) {  // the exponent field itself; callers keep n within [-126, 127]
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
  }
  static Reg load_f16(const std::byte* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Reg load_bf16(const std::byte* p) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
  static Reg load_u8(const std::byte* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  static __m256i bytes(const std::byte* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  // The byte's exponent and mantissa at the place of f32's are the value times 2^-120; subnormals come out right, too.
  static Reg e4m3_of(__m256i codes) {
    const __m256i magnitude = _mm256_slli_epi32(_mm256_and_si256(codes, _mm256_set1_epi32(0x7F)), 20);
    const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(codes, _mm256_set1_epi32(0x80)), 24);
    return _mm256_mul_ps(_mm256_castsi256_ps(_mm256_or_si256(magnitude, sign)), _mm256_set1_ps(0x1p120F));
  }
  static Reg load_e4m3(const std::byte* p) { return e4m3_of(bytes(p)); }
  static Reg load_e8m0(const std::byte* p) {  // code 0 is 2^-127, a subnormal: half of the smallest exponent's pattern
    return _mm256_castsi256_ps(_mm256_max_epu32(_mm256_slli_epi32(bytes(p), 23), _mm256_set1_epi32(0x00400000)));
  }
};

inline __m256i load_words(const std::byte* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

#include "kernels/cpu/panel_body.inc"

struct Q4 {
  using Input = float;
  static constexpr std::int64_t kBytes = 128;
  static constexpr float kOffset = 8.0F;
  template <int T, class Acc>
  void accumulate(Acc& acc, const std::byte* at, const Input* const (&x)[T], std::int64_t column) const {
    const __m256i mask = _mm256_set1_epi32(15);
    const __m256i offset = _mm256_set1_epi32(8);
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      __m256i words = load_words(at + r * 32);
#pragma GCC unroll 8
      for (int n = 0; n < 8; ++n) {
        const __m256 w = _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_and_si256(words, mask), offset));
        const int k = n < 4 ? 2 * n : 2 * (n - 4) + 1;
#pragma GCC unroll 6
        for (int t = 0; t < T; ++t) {
          __m256& sum = acc.value[t][r][n % chains<T>()];
          sum = V::fma(w, V::set1(x[t][column + k]), sum);
        }
        words = _mm256_srli_epi32(words, 4);
      }
    }
  }
};

// e2m1: the low 3 bits index a table of 8, bit 3 is the sign.
struct E2m1 {
  using Input = float;
  static constexpr std::int64_t kBytes = 128;
  __m256 table = _mm256_setr_ps(0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F);
  template <int T, class Acc>
  void accumulate(Acc& acc, const std::byte* at, const Input* const (&x)[T], std::int64_t column) const {
    const __m256i sign_bit = _mm256_set1_epi32(8);
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      __m256i words = load_words(at + r * 32);
#pragma GCC unroll 8
      for (int n = 0; n < 8; ++n) {
        const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(words, sign_bit), 28);
        const __m256 w = _mm256_or_ps(_mm256_permutevar8x32_ps(table, words), _mm256_castsi256_ps(sign));
        const int k = n < 4 ? 2 * n : 2 * (n - 4) + 1;
#pragma GCC unroll 6
        for (int t = 0; t < T; ++t) {
          __m256& sum = acc.value[t][r][n % chains<T>()];
          sum = V::fma(w, V::set1(x[t][column + k]), sum);
        }
        words = _mm256_srli_epi32(words, 4);
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
      constexpr int kByte[4] = {0, 2, 1, 3};
#pragma GCC unroll 4
      for (int r = 0; r < 4; ++r) {
        const __m256i words = load_words(at + k / 4 * 128 + r * 32);
        const __m256 w = V::e4m3_of(_mm256_srli_epi32(words, 8 * kByte[k % 4]));
#pragma GCC unroll 6
        for (int t = 0; t < T; ++t) {
          __m256& sum = acc.value[t][r][k % chains<T>()];
          sum = V::fma(w, V::set1(x[t][column + k]), sum);
        }
      }
    }
  }
};

struct Q8 {
  using Input = float;
  static constexpr std::int64_t kBytes = 256;
  static constexpr float kOffset = 128.0F;
  template <int T, class Acc>
  void accumulate(Acc& acc, const std::byte* at, const Input* const (&x)[T], std::int64_t column) const {
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
#pragma GCC unroll 4
      for (int r = 0; r < 4; ++r) {
        const __m256i words = load_words(at + k / 4 * 128 + r * 32);
        const __m256 w = _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(words, 24 - 8 * (k % 4)), 24));
#pragma GCC unroll 6
        for (int t = 0; t < T; ++t) {
          __m256& sum = acc.value[t][r][k % chains<T>()];
          sum = V::fma(w, V::set1(x[t][column + k]), sum);
        }
      }
    }
  }
};

// Two 16-bit floats a lane: `even` and `odd` widen a register of lanes to the f32 of the two columns.
template <class Widen>
struct DensePairs {
  using Input = float;
  static constexpr std::int64_t kBytes = 512;
  template <int T, class Acc>
  void accumulate(Acc& acc, const std::byte* at, const Input* const (&x)[T], std::int64_t column) const {
#pragma GCC unroll 4
    for (int p = 0; p < 4; ++p) {
#pragma GCC unroll 4
      for (int r = 0; r < 4; ++r) {
        const __m256i words = load_words(at + p * 128 + r * 32);
        const __m256 even = Widen::even(words);
        const __m256 odd = Widen::odd(words);
#pragma GCC unroll 6
        for (int t = 0; t < T; ++t) {
          __m256& first = acc.value[t][r][2 * p % chains<T>()];
          first = V::fma(even, V::set1(x[t][column + 2 * p]), first);
          __m256& second = acc.value[t][r][(2 * p + 1) % chains<T>()];
          second = V::fma(odd, V::set1(x[t][column + 2 * p + 1]), second);
        }
      }
    }
  }
};

struct WidenBf16 {
  static __m256 even(__m256i words) { return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16)); }
  static __m256 odd(__m256i words) {
    return _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32(static_cast<int>(0xFFFF0000U))));
  }
};
struct WidenF16 {
  static __m256 low_halves(__m256i words) {  // 8 lanes whose values fit 16 bits -> 8 f32
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
  }
  static __m256 even(__m256i words) { return low_halves(_mm256_and_si256(words, _mm256_set1_epi32(0xFFFF))); }
  static __m256 odd(__m256i words) { return low_halves(_mm256_srli_epi32(words, 16)); }
};
using DenseBf16 = DensePairs<WidenBf16>;
using DenseF16 = DensePairs<WidenF16>;

struct DenseF32 {
  using Input = float;
  static constexpr std::int64_t kBytes = 1024;
  template <int T, class Acc>
  void accumulate(Acc& acc, const std::byte* at, const Input* const (&x)[T], std::int64_t column) const {
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
#pragma GCC unroll 4
      for (int r = 0; r < 4; ++r) {
        const __m256 w = V::load(reinterpret_cast<const float*>(at) + k * 32 + r * 8);
#pragma GCC unroll 6
        for (int t = 0; t < T; ++t) {
          __m256& sum = acc.value[t][r][k % chains<T>()];
          sum = V::fma(w, V::set1(x[t][column + k]), sum);
        }
      }
    }
  }
};

}  // namespace

const PanelOps kAvx2Ops = {
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
