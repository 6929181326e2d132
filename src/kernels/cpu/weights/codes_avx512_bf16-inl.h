// Codes to registers of bf16 pairs: 16-bit activations, bf16 products, f32 accumulation (VDPBF16PS). Needs VBMI for
// E4M3.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/weights/codes_common-inl.h"
#include "scheme/codes.h"

namespace moracle::cpu::avx512 {

// Pairs of bf16 columns a lane.
template <class Simd>
struct Bf16Form {
  using V = Simd;
  using Sums = FloatSums<V>;
  using Input = std::uint16_t;
  using Weight = __m512bh;
  using Sum = __m512;
  static constexpr ActDtype kAct = ActDtype::bf16;
  static constexpr int kWidth = 2;
  static constexpr int chains(int) { return V::kChains; }
  static float number(std::uint16_t bits) { return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16U); }
  static Weight broadcast(const std::uint16_t* x) { return reinterpret_cast<__m512bh>(V::broadcast_lane(x)); }
  static __m512 madd(Weight w, Weight x, __m512 sum) {
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
    return sum;
  }
  static Weight load(const std::byte* p) { return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p)); }
  static void store(std::byte* p, Weight w) { _mm512_storeu_si512(p, reinterpret_cast<__m512i>(w)); }
};

inline constexpr WordTable kInt4AsBf16{{0xC100, 0xC0E0, 0xC0C0, 0xC0A0, 0xC080, 0xC040, 0xC000, 0xBF80,    // -8 .. -1
                                        0x0000, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0, 0x40C0, 0x40E0}};  // 0 .. 7
inline constexpr WordTable kE2m1AsBf16{{0x0000, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040, 0x4080, 0x40C0,    // 0 .. 6
                                        0x8000, 0xBF00, 0xBF80, 0xBFC0, 0xC000, 0xC040, 0xC080, 0xC0C0}};  // -0 .. -6

template <class V, WeightCode kOfCode, const WordTable& kTable>
struct Bf16Nibbles : ScaledCode<kOfCode, 8> {
  using Form = Bf16Form<V>;
  __m512i table = _mm512_load_si512(kTable.of);
  __m512bh weight(const std::byte* at, int k, int r) const {
    const __m512i words = _mm512_srli_epi16(_mm512_loadu_si512(at + r * 64), static_cast<unsigned>(4 * k));
    return reinterpret_cast<__m512bh>(_mm512_permutexvar_epi16(words, table));
  }
};

template <class V>
using Bf16Int4 = Bf16Nibbles<V, WeightCode::int4, kInt4AsBf16>;
template <class V>
using Bf16E2m1 = Bf16Nibbles<V, WeightCode::e2m1, kE2m1AsBf16>;

// The upper halves of two f32, which are bf16 numbers.
template <class V>
inline __m512i bf16_pairs(__m512 even, __m512 odd) {
  const __m512i high_half = _mm512_set1_epi32(static_cast<int>(0xFFFF0000U));
  // (high_half & odd) | (even >> 16)
  return _mm512_ternarylogic_epi32(high_half, _mm512_castps_si512(odd),
                                   _mm512_srli_epi32(_mm512_castps_si512(even), 16), 0xEA);
}

// int8: bytes are sign-extended, converted and narrowed to bf16 pairs; integers of 8 bits are exact on the way.
template <class V>
struct Bf16Int8 : ScaledCode<WeightCode::int8, 128> {
  using Form = Bf16Form<V>;
  __m512bh weight(const std::byte* at, int k, int r) const {
    const __m512i stored = _mm512_loadu_si512(at + k / 2 * 128 + r * 64);
    const __m512i words = k % 2 == 0 ? _mm512_slli_epi32(stored, 16) : stored;  // the pair in bytes 2 and 3
    const __m512 even = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(words, 8), 24));
    const __m512 odd = _mm512_cvtepi32_ps(_mm512_srai_epi32(words, 24));
    return reinterpret_cast<__m512bh>(bf16_pairs<V>(even, odd));
  }
};

// bf16 of the 128 magnitudes of E4M3, high and low bytes apart, for a 7-bit byte permute.
struct E4m3Table {
  alignas(64) std::uint8_t high[128];
  alignas(64) std::uint8_t low[128];
};
consteval E4m3Table make_e4m3_table() {
  E4m3Table table{};
  for (int code = 0; code < 128; ++code) {
    const int bits = encode_bf16(decode_e4m3(static_cast<std::uint8_t>(code)));
    table.high[code] = static_cast<std::uint8_t>(bits >> 8);
    table.low[code] = static_cast<std::uint8_t>(bits & 0xFF);
  }
  return table;
}
inline constexpr E4m3Table kE4m3AsBf16 = make_e4m3_table();

// e4m3, any code: two byte permutes look up 64 codes; shifts and merges make the pairs. All values are exact in bf16.
// Needs VBMI.
template <class V>
struct Bf16AnyE4m3 {
  __m512i high0 = _mm512_load_si512(kE4m3AsBf16.high);
  __m512i high1 = _mm512_load_si512(kE4m3AsBf16.high + 64);
  __m512i low0 = _mm512_load_si512(kE4m3AsBf16.low);
  __m512i low1 = _mm512_load_si512(kE4m3AsBf16.low + 64);
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

template <class V>
struct Bf16E4m3 : NormalE4m3<V> {
  using Form = Bf16Form<V>;
  using Careful = Bf16AnyE4m3<V>;
  __m512bh weight(const std::byte* at, int k, int r) const { return reinterpret_cast<__m512bh>(this->pairs(at, k, r)); }
};

template <class V>
struct Bf16Bf16 : DenseCode<WeightCode::bf16> {
  using Form = Bf16Form<V>;
  __m512bh weight(const std::byte* at, int k, int r) const { return Bf16Form<V>::load(at + k * 128 + r * 64); }
};

template <class V>
struct Bf16Bf16x12 : Bf16x12Pairs<V> {
  using Form = Bf16Form<V>;
  __m512bh weight(const std::byte* at, int k, int r) const { return reinterpret_cast<__m512bh>(this->pairs(at, k, r)); }
};

}  // namespace moracle::cpu::avx512
