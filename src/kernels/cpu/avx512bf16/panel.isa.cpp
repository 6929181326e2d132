// AVX-512 BF16 micro-kernels: 16-bit activations, bf16 products, f32 accumulation (VDPBF16PS).
//
// q4, per 64-byte load of 16 rows x 8 columns: 3 shifts and 4 table permutes make 4 registers of bf16 pairs, each used
// by T multiply-adds whose activation pair is a broadcast memory operand. Codes minus 8 (or 128) are integers below
// 2^8, exact in bf16, so the only roundings are those of the activations and of the f32 sums. Registers for a tile of
// 6 tokens x 32 rows: 12 accumulators, 12 totals, the table, and up to 5 for the decoded pairs. At T = 6 the permutes
// and shifts (7) hide under the 24 multiply-adds, which issue one a cycle; at T = 1 a 64-byte load costs about 5
// cycles, more than DRAM delivers to one core, so decode is bound by memory.
#include <immintrin.h>

#include "kernels/cpu/panel.h"

namespace moracle::cpu {
namespace {

#include "kernels/cpu/avx512/vectors512.inc"

#include "kernels/cpu/panel_body.inc"

#include "kernels/cpu/avx512/dense512.inc"

// Pairs of bf16 columns a lane.
struct Bf16Form {
  using Input = std::uint16_t;
  using Weight = __m512bh;
  static constexpr int kWidth = 2;
  static Weight broadcast(const std::uint16_t* x) {
    std::int32_t pair;
    __builtin_memcpy(&pair, x, sizeof pair);
    return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
  }
  static __m512 madd(Weight w, Weight x, __m512 sum) { return _mm512_dpbf16_ps(sum, w, x); }
  static Weight load(const std::byte* p) { return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p)); }
  static void store(std::byte* p, Weight w) { _mm512_storeu_si512(p, reinterpret_cast<__m512i>(w)); }
};

// bf16 of each of 16 codes, twice: the permute reads 5 index bits and the fifth is a neighbour's.
struct CodeTable {
  alignas(64) std::uint16_t values[32];
};
constexpr CodeTable kIntegers = {{0xC100, 0xC0E0, 0xC0C0, 0xC0A0, 0xC080, 0xC040, 0xC000, 0xBF80,  // -8 .. -1
                                  0x0000, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0, 0x40E0,  // 0 .. 7
                                  0xC100, 0xC0E0, 0xC0C0, 0xC0A0, 0xC080, 0xC040, 0xC000, 0xBF80,
                                  0x0000, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0, 0x40E0}};
constexpr CodeTable kE2m1 = {{0x0000, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040, 0x4080, 0x40C0,  // 0 .. 6
                              0x8000, 0xBF00, 0xBF80, 0xBFC0, 0xC000, 0xC040, 0xC080, 0xC0C0,  // -0 .. -6
                              0x0000, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040, 0x4080, 0x40C0,
                              0x8000, 0xBF00, 0xBF80, 0xBFC0, 0xC000, 0xC040, 0xC080, 0xC0C0}};

template <const CodeTable& Table>
struct Nibbles {
  using Form = Bf16Form;
  static constexpr std::int64_t kBytes = 128;
  static constexpr float kOffset = 8.0F;
  __m512i table = _mm512_load_si512(Table.values);
  __m512bh weight(const std::byte* at, int k, int r) const {
    const __m512i words = _mm512_srli_epi16(_mm512_loadu_si512(at + r * 64), static_cast<unsigned>(4 * k));
    return reinterpret_cast<__m512bh>(_mm512_permutexvar_epi16(words, table));
  }
};

using Q4 = Nibbles<kIntegers>;
using E2m1 = Nibbles<kE2m1>;

// q8: bytes are sign-extended, converted and narrowed to bf16 pairs; integers of 8 bits are exact on the way.
struct Q8 {
  using Form = Bf16Form;
  static constexpr std::int64_t kBytes = 256;
  static constexpr float kOffset = 128.0F;

  // bf16 pair of bytes 2 and 3 of each lane.
  static __m512bh upper_pair(__m512i words) {
    const __m512i high_half = _mm512_set1_epi32(static_cast<int>(0xFFFF0000U));
    const __m512 even = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(words, 8), 24));
    const __m512 odd = _mm512_cvtepi32_ps(_mm512_srai_epi32(words, 24));
    // (high_half & odd) | (even >> 16)
    return reinterpret_cast<__m512bh>(_mm512_ternarylogic_epi32(
        high_half, _mm512_castps_si512(odd), _mm512_srli_epi32(_mm512_castps_si512(even), 16), 0xEA));
  }

  __m512bh weight(const std::byte* at, int k, int r) const {
    const __m512i words = _mm512_loadu_si512(at + k / 2 * 128 + r * 64);
    return upper_pair(k % 2 == 0 ? _mm512_slli_epi32(words, 16) : words);
  }
};

// bf16 of the 128 magnitudes of E4M3, high and low bytes apart, for a 7-bit byte permute.
struct E4m3Table {
  alignas(64) std::uint8_t high[128];
  alignas(64) std::uint8_t low[128];
};
constexpr E4m3Table make_e4m3_table() {
  E4m3Table table{};
  for (int code = 0; code < 128; ++code) {
    int exponent = code >> 3;
    int mantissa = code & 7;
    int bits = 0;
    if (exponent > 0) {
      bits = (exponent + 120) << 7 | mantissa << 4;
    } else if (mantissa > 0) {  // m * 2^-9, normalized
      exponent = 121;
      while (mantissa < 8) {
        mantissa <<= 1;
        --exponent;
      }
      bits = exponent << 7 | (mantissa & 7) << 4;
    }
    table.high[code] = static_cast<std::uint8_t>(bits >> 8);
    table.low[code] = static_cast<std::uint8_t>(bits & 0xFF);
  }
  return table;
}
constexpr E4m3Table kE4m3 = make_e4m3_table();

// e4m3: two byte permutes look up 64 codes; shifts and merges make the pairs. All values are exact in bf16. Needs VBMI.
struct E4m3 {
  using Form = Bf16Form;
  static constexpr std::int64_t kBytes = 256;
  static constexpr float kOffset = 0.0F;
  __m512i high0 = _mm512_load_si512(kE4m3.high);
  __m512i high1 = _mm512_load_si512(kE4m3.high + 64);
  __m512i low0 = _mm512_load_si512(kE4m3.low);
  __m512i low1 = _mm512_load_si512(kE4m3.low + 64);
  __m512bh weight(const std::byte* at, int k, int r) const {
    const __m512i codes = _mm512_loadu_si512(at + k / 2 * 128 + r * 64);
    const __m512i low = _mm512_permutex2var_epi8(low0, codes, low1);
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    // high | (codes & sign)
    const __m512i high = _mm512_ternarylogic_epi32(_mm512_permutex2var_epi8(high0, codes, high1), codes, sign, 0xF8);
    // (high << 8) | (low & 0x00FF), or (high & 0xFF00) | (low >> 8): a select by the low byte.
    const __m512i low_byte = _mm512_set1_epi16(0x00FF);
    return reinterpret_cast<__m512bh>(k % 2 == 0
                                          ? _mm512_ternarylogic_epi32(low_byte, low, _mm512_slli_epi16(high, 8), 0xCA)
                                          : _mm512_ternarylogic_epi32(low_byte, _mm512_srli_epi16(low, 8), high, 0xCA));
  }
};

struct DenseBf16 {
  using Form = Bf16Form;
  static constexpr std::int64_t kBytes = 512;
  __m512bh weight(const std::byte* at, int k, int r) const { return Bf16Form::load(at + k * 128 + r * 64); }
};

void to_bf16(const float* in, std::uint16_t* out, std::int64_t count) {
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

}  // namespace

const PanelOps kAvx512Bf16Ops = {
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
    .run_from = 24,
    .quantized_input = InputForm::bf16,
    .bf16_input = InputForm::bf16,
    .to_bf16 = to_bf16,
    .activate = activate,
    .weighted_sum = weighted_sum,
};

}  // namespace moracle::cpu
