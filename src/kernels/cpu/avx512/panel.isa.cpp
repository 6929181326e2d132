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

#include "kernels/cpu/panel_run_body.inc"

#include "kernels/cpu/activation_body.inc"

#include "kernels/cpu/avx512/dense512.inc"

struct CodeTable {
  alignas(64) float values[16];
};
constexpr CodeTable kIntegers = {{-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7}};
constexpr CodeTable kE2m1 = {{0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6}};

template <const CodeTable& Table>
struct Nibbles {
  using Form = F32Form;
  static constexpr std::int64_t kBytes = 128;
  static constexpr float kOffset = 8.0F;
  static constexpr float kUnit = 1.0F;
  __m512 table = _mm512_load_ps(Table.values);
  __m512 weight(const std::byte* at, int k, int r) const {
    const auto nibble = static_cast<unsigned>(k / 2 + k % 2 * 4);
    // The permute reads the low 4 bits of each lane.
    return _mm512_permutexvar_ps(_mm512_srli_epi32(_mm512_loadu_si512(at + r * 64), 4 * nibble), table);
  }
};

using Q4 = Nibbles<kIntegers>;
using E2m1 = Nibbles<kE2m1>;

struct Q8 {
  using Form = F32Form;
  static constexpr std::int64_t kBytes = 256;
  static constexpr float kOffset = 128.0F;
  static constexpr float kUnit = 1.0F;
  __m512 weight(const std::byte* at, int k, int r) const {
    const __m512i words = _mm512_loadu_si512(at + k / 4 * 128 + r * 64);
    const auto up = static_cast<unsigned>(24 - 8 * (k % 4));
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(words, up), 24));
  }
};

constexpr unsigned kE4m3Byte[4] = {0, 2, 1, 3};  // of a lane, by column

// e4m3, any code.
struct CarefulE4m3 {
  __m512 weight(const std::byte* at, int k, int r) const {
    const __m512i words = _mm512_loadu_si512(at + k / 4 * 128 + r * 64);
    return V::e4m3_of(_mm512_srli_epi32(words, 8 * kE4m3Byte[k % 4]));
  }
};

// e4m3 without zeros and subnormal numbers: exponent and mantissa go to their place, and the exponent gets the larger
// bias.
struct E4m3 {
  using Form = F32Form;
  using Careful = CarefulE4m3;
  static constexpr std::int64_t kBytes = 256;
  static constexpr float kOffset = 0.0F;
  static constexpr float kUnit = 1.0F;
  bool plain(const std::byte* at) const {
    const __m512i exponent = _mm512_set1_epi8(0x78);
    __mmask64 normal = ~__mmask64{0};
#pragma GCC unroll 4
    for (int line = 0; line < 4; ++line) {
      normal = _mm512_mask_test_epi8_mask(normal, _mm512_loadu_si512(at + line * 64), exponent);
    }
    return normal == ~__mmask64{0};
  }
  __m512 weight(const std::byte* at, int k, int r) const {
    const __m512i words = _mm512_loadu_si512(at + k / 4 * 128 + r * 64);
    const __m512i on_top = _mm512_slli_epi32(words, 24 - 8 * kE4m3Byte[k % 4]);
    const __m512i bits =
        _mm512_and_si512(_mm512_srai_epi32(on_top, 4), _mm512_set1_epi32(static_cast<int>(0x87F00000U)));
    return _mm512_castsi512_ps(_mm512_add_epi32(bits, _mm512_set1_epi32(120 << 23)));
  }
};

struct DenseBf16 {
  using Form = F32Form;
  static constexpr std::int64_t kBytes = 512;
  static constexpr float kUnit = 1.0F;
  __m512 weight(const std::byte* at, int k, int r) const {
    const __m512i words = _mm512_loadu_si512(at + k / 2 * 128 + r * 64);
    if (k % 2 == 0) return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
    return _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(static_cast<int>(0xFFFF0000U))));
  }
};

}  // namespace

constinit const PanelOps kAvx512Ops = {
    .q4 = integer_kernels<Q4>(24),
    .q8 = integer_kernels<Q8>(24),
    .e2m1 = float_kernels<E2m1>(24),
    .e4m3 = float_kernels<E4m3>(24),
    .bf16 = dense_kernels<DenseBf16>(),
    .f16 = dense_kernels<DenseF16>(),
    .f32 = dense_kernels<DenseF32>(),
    .bf16_compact = {},
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
    .of_head = nullptr,
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
