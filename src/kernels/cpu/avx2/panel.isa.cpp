// AVX2 micro-kernels: f32 activations, f32 FMA, 8 lanes.
//
// Four registers hold the 32 rows of a panel. 16 registers in all leave room for tiles of 2 tokens (8 sums) beside the
// decoded weights; tiles of 3 to 5 take two registers of rows at a time: 10 sums, 2 weights, a broadcast, and what
// decoding needs. A code costs three to five operations to widen to f32, one column a lane, so runs meet weights that
// are decoded once for all.
#include <immintrin.h>

#include "kernels/cpu/panel.h"

namespace moracle::cpu {
namespace {

#include "kernels/cpu/avx2/vectors256.inc"

#include "kernels/cpu/panel_body.inc"

#include "kernels/cpu/panel_run_body.inc"

#include "kernels/cpu/activation_body.inc"

struct Q4 {
  using Form = F32Form;
  static constexpr std::int64_t kBytes = 128;
  static constexpr float kOffset = 8.0F;
  static constexpr float kUnit = 1.0F;
  __m256 weight(const std::byte* at, int k, int r) const {
    const __m256i words = _mm256_srli_epi32(load_words(at + r * 32), 4 * (k / 2 + k % 2 * 4));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_and_si256(words, _mm256_set1_epi32(15)), _mm256_set1_epi32(8)));
  }
};

// e2m1: the low 3 bits index a table of 8, bit 3 is the sign.
struct E2m1 {
  using Form = F32Form;
  static constexpr std::int64_t kBytes = 128;
  static constexpr float kOffset = 0.0F;
  static constexpr float kUnit = 1.0F;
  __m256 table = _mm256_setr_ps(0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F);
  __m256 weight(const std::byte* at, int k, int r) const {
    const __m256i words = _mm256_srli_epi32(load_words(at + r * 32), 4 * (k / 2 + k % 2 * 4));
    const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(words, _mm256_set1_epi32(8)), 28);
    return _mm256_or_ps(_mm256_permutevar8x32_ps(table, words), _mm256_castsi256_ps(sign));
  }
};

// Of pairs of bf16, the even or the odd column.
__m256 column_of(__m256i pairs, int k) {
  if (k % 2 == 0) return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
  return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xFFFF0000U))));
}

constexpr int kE4m3Byte[4] = {0, 2, 1, 3};  // of a lane, by column

// e4m3, any code.
struct CarefulE4m3 {
  __m256 weight(const std::byte* at, int k, int r) const {
    return V::e4m3_of(_mm256_srli_epi32(load_words(at + k / 4 * 128 + r * 32), 8 * kE4m3Byte[k % 4]));
  }
};

// e4m3 without zeros and subnormal numbers: exponent and mantissa go to their place, and the exponent gets the larger
// bias, of two columns at a time as bf16.
struct E4m3 {
  using Form = F32Form;
  using Careful = CarefulE4m3;
  static constexpr std::int64_t kBytes = 256;
  static constexpr float kOffset = 0.0F;
  static constexpr float kUnit = 1.0F;
  bool plain(const std::byte* at) const {
    const __m256i exponent = _mm256_set1_epi8(0x78);
    __m256i least = exponent;
#pragma GCC unroll 8
    for (int line = 0; line < 8; ++line) {
      least = _mm256_min_epu8(least, _mm256_and_si256(load_words(at + line * 32), exponent));
    }
    const __m256i small = _mm256_cmpeq_epi8(least, _mm256_setzero_si256());
    return _mm256_testz_si256(small, small) != 0;
  }
  __m256 weight(const std::byte* at, int k, int r) const {
    const __m256i words = load_words(at + k / 4 * 128 + r * 32);
    const __m256i on_top = k % 4 < 2 ? _mm256_slli_epi16(words, 8) : words;
    const __m256i bits = _mm256_and_si256(_mm256_srai_epi16(on_top, 4), _mm256_set1_epi16(static_cast<short>(0x87F0)));
    return column_of(_mm256_add_epi16(bits, _mm256_set1_epi16(120 << 7)), k);
  }
};

struct Q8 {
  using Form = F32Form;
  static constexpr std::int64_t kBytes = 256;
  static constexpr float kOffset = 128.0F;
  static constexpr float kUnit = 1.0F;
  __m256 weight(const std::byte* at, int k, int r) const {
    const __m256i words = load_words(at + k / 4 * 128 + r * 32);
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(words, 24 - 8 * (k % 4)), 24));
  }
};

struct DenseBf16 {
  using Form = F32Form;
  static constexpr std::int64_t kBytes = 512;
  static constexpr float kUnit = 1.0F;
  static __m256 weight(const std::byte* at, int k, int r) {
    return column_of(load_words(at + k / 2 * 128 + r * 32), k);
  }
};

constexpr CompactHighBytes kHighBytes = compact_high_bytes();

// Of bf16 in 12 bits, 64 weights: a shift, 2 masks and 2 byte permutes make the high bytes, and 4 more permutes put low
// bytes beside them, for 96 bytes of memory where plain numbers have 128. Runs keep them as plain numbers: half of
// these operations wait for the pipe of a multiply-add, 5 tokens reach 84 GFLOP/s, plain numbers 99.
struct CompactBf16 {
  using Form = F32Form;
  static constexpr bool kListed = true;
  static constexpr std::int64_t kBytes = 384;
  static constexpr float kUnit = 1.0F;
  using Kept = DenseBf16;
  __m256i table = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(kHighBytes.of)));
  // Columns 2k and 2k + 1 of register r's rows.
  __m256i pair(const std::byte* at, int k, int r) const {
    const __m256i low = load_words(at + k / 2 * 128 + r * 32);
    const __m256i nibbles = _mm256_srli_epi16(load_words(at + 256 + r * 32), k / 2 * 4);
    const __m256i high = _mm256_shuffle_epi8(table, _mm256_and_si256(nibbles, _mm256_set1_epi8(0x0F)));
    return k % 2 == 0 ? _mm256_unpacklo_epi8(low, high) : _mm256_unpackhi_epi8(low, high);
  }
  __m256 weight(const std::byte* at, int k, int r) const { return column_of(pair(at, k / 2, r), k); }
  void keep(const std::byte* at, std::byte* out) const {
#pragma GCC unroll 4
    for (int r = 0; r < V::kRegs; ++r) {
      const __m256i words[4] = {pair(at, 0, r), pair(at, 1, r), pair(at, 2, r), pair(at, 3, r)};
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) store_words(out + k * 128 + r * 32, words[k]);
    }
  }
};

struct DenseF16 {
  using Form = F32Form;
  static constexpr std::int64_t kBytes = 512;
  static constexpr float kUnit = 1.0F;
  __m256 weight(const std::byte* at, int k, int r) const {
    __m256i words = load_words(at + k / 2 * 128 + r * 32);
    words = k % 2 == 0 ? _mm256_and_si256(words, _mm256_set1_epi32(0xFFFF)) : _mm256_srli_epi32(words, 16);
    // 8 lanes whose values fit 16 bits -> 8 f32
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
  }
};

struct DenseF32 {
  using Form = F32Form;
  static constexpr std::int64_t kBytes = 1024;
  static constexpr float kUnit = 1.0F;
  __m256 weight(const std::byte* at, int k, int r) const { return F32Form::load(at + k * 128 + r * 32); }
};

// Two tiles that decode for themselves are as fast as a run.
constexpr std::int64_t kRunFrom = 10;
// As fast as those that decode so little.
constexpr std::int64_t kCompactRunFrom = 32;

}  // namespace

constinit const PanelOps kAvx2NumberOps = {
    .q4 = integer_kernels<Q4>(kRunFrom),
    .q8 = integer_kernels<Q8>(kRunFrom),
    .e2m1 = float_kernels<E2m1>(kRunFrom),
    .e4m3 = float_kernels<E4m3>(kRunFrom),
    .bf16 = dense_kernels<DenseBf16>(),
    .f16 = dense_kernels<DenseF16>(),
    .f32 = dense_kernels<DenseF32>(),
    .bf16_compact = with_runs<CompactBf16>(dense_kernels<CompactBf16>(), kCompactRunFrom),
    .q4_i8 = {},
    .q8_i8 = {},
    .e2m1_i8 = {},
    .q4_i16 = {},
    .q8_i16 = {},
    .e2m1_i16 = {},
    .q4_planes = {},
    .q8_planes = {},
    .e2m1_planes = {},
    .wide_panels = {wide_panels<1>(), wide_panels<2>(), wide_panels<3>()},
    .quantized_input = InputForm::f32,
    .e2m1_input = InputForm::f32,
    .coded_input = InputForm::f32,
    .bf16_input = InputForm::f32,
    .few = nullptr,
    .few_below = 0,
    .of_head = &kAvx2Ops,
    .interleaved = false,
    .even_rows = false,
    .to_bf16 = nullptr,
    .absolute_max = absolute_max,
    .round_numbers = round_numbers,
    .encode8 = nullptr,
    .encode16 = nullptr,
    .encode_planes = nullptr,
    .activate = activate,
    .weighted_sum = weighted_sum,
};

}  // namespace moracle::cpu
