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

#include "kernels/cpu/panel_run_body.inc"

#include "kernels/cpu/activation_body.inc"

#include "kernels/cpu/avx512/dense512.inc"

#include "kernels/cpu/avx512bf16/decoders_bf16.inc"

struct DenseBf16 {
  using Form = Bf16Form;
  static constexpr std::int64_t kBytes = 512;
  static constexpr float kUnit = 1.0F;
  __m512bh weight(const std::byte* at, int k, int r) const { return Bf16Form::load(at + k * 128 + r * 64); }
};

// Per 4 registers of 16 rows x 2 columns: a shift, 2 masks and 2 byte permutes make the high bytes, and each register
// is low and high bytes interleaved, for 192 bytes of memory where plain numbers have 256.
constexpr CompactHighBytes kHighBytes = compact_high_bytes();

struct CompactBf16 {
  using Form = Bf16Form;
  static constexpr bool kListed = true;
  static constexpr std::int64_t kBytes = 384;
  static constexpr float kUnit = 1.0F;
  __m512i table = _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(kHighBytes.of)));
  __m512bh weight(const std::byte* at, int k, int r) const {
    const __m512i low = _mm512_loadu_si512(at + k / 2 * 128 + r * 64);
    const __m512i nibbles = _mm512_srli_epi16(_mm512_loadu_si512(at + 256 + r * 64), static_cast<unsigned>(k / 2 * 4));
    const __m512i high = _mm512_shuffle_epi8(table, _mm512_and_si512(nibbles, _mm512_set1_epi8(0x0F)));
    return reinterpret_cast<__m512bh>(k % 2 == 0 ? _mm512_unpacklo_epi8(low, high) : _mm512_unpackhi_epi8(low, high));
  }
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

constinit const PanelOps kAvx512Bf16Ops = {
    .q4 = integer_tiles<Q4>(),
    .q8 = integer_kernels<Q8>(24),
    .e2m1 = float_tiles<E2m1>(),
    .e4m3 = float_kernels<E4m3>(24),
    .bf16 = dense_kernels<DenseBf16>(),
    .f16 = dense_kernels<DenseF16>(),
    .f32 = dense_kernels<DenseF32>(),
    .bf16_compact = dense_kernels<CompactBf16>(),
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
    .quantized_input = InputForm::bf16,
    .e2m1_input = InputForm::bf16,
    .coded_input = InputForm::bf16,
    .bf16_input = InputForm::bf16,
    .few = nullptr,
    .few_below = 0,
    .of_head = &kAvx512VnniOps,
    .interleaved = false,
    .even_rows = false,
    .to_bf16 = to_bf16,
    .absolute_max = absolute_max,
    .round_numbers = round_numbers,
    .encode8 = nullptr,
    .encode16 = nullptr,
    .encode_planes = nullptr,
    .activate = activate,
    .weighted_sum = weighted_sum,
};

}  // namespace moracle::cpu
