// AVX2 micro-kernels: f32 activations, f32 FMA, 8 lanes.
//
// Four registers hold the 32 rows of a panel. 16 registers in all leave room for tiles of 2 tokens (8 sums) beside the
// decoded weights. From 3 tokens on weights are decoded first, and tiles of up to 6 tokens take two registers of rows
// at a time: 12 sums, 2 weights, 1 broadcast. q4 costs shift, mask, subtract and convert per column and register, so
// decode is bound by these at about 16 cycles per 32 bytes.
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
  using Form = F32Form;
  static constexpr std::int64_t kBytes = 128;
  static constexpr float kOffset = 8.0F;
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
  __m256 table = _mm256_setr_ps(0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F);
  __m256 weight(const std::byte* at, int k, int r) const {
    const __m256i words = _mm256_srli_epi32(load_words(at + r * 32), 4 * (k / 2 + k % 2 * 4));
    const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(words, _mm256_set1_epi32(8)), 28);
    return _mm256_or_ps(_mm256_permutevar8x32_ps(table, words), _mm256_castsi256_ps(sign));
  }
};

struct E4m3 {
  using Form = F32Form;
  static constexpr std::int64_t kBytes = 256;
  static constexpr float kOffset = 0.0F;
  __m256 weight(const std::byte* at, int k, int r) const {
    constexpr int kByte[4] = {0, 2, 1, 3};
    return V::e4m3_of(_mm256_srli_epi32(load_words(at + k / 4 * 128 + r * 32), 8 * kByte[k % 4]));
  }
};

struct Q8 {
  using Form = F32Form;
  static constexpr std::int64_t kBytes = 256;
  static constexpr float kOffset = 128.0F;
  __m256 weight(const std::byte* at, int k, int r) const {
    const __m256i words = load_words(at + k / 4 * 128 + r * 32);
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(words, 24 - 8 * (k % 4)), 24));
  }
};

struct DenseBf16 {
  using Form = F32Form;
  static constexpr std::int64_t kBytes = 512;
  __m256 weight(const std::byte* at, int k, int r) const {
    const __m256i words = load_words(at + k / 2 * 128 + r * 32);
    if (k % 2 == 0) return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
    return _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32(static_cast<int>(0xFFFF0000U))));
  }
};

struct DenseF16 {
  using Form = F32Form;
  static constexpr std::int64_t kBytes = 512;
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
  __m256 weight(const std::byte* at, int k, int r) const { return F32Form::load(at + k * 128 + r * 32); }
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
    .q4_run = multiply_run<Q4>,
    .q8_run = multiply_run<Q8>,
    .e2m1_run = multiply_run<E2m1>,
    .e4m3_run = multiply_run<E4m3>,
    .run_from = 3,
    .quantized_input = InputForm::f32,
    .bf16_input = InputForm::f32,
    .to_bf16 = nullptr,
    .activate = activate,
    .weighted_sum = weighted_sum,
};

}  // namespace moracle::cpu
