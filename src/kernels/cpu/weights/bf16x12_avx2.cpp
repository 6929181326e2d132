// bf16 weights in 12 bits (bf16x12.h). VPACKUSWB turns two registers of words into one of low bytes and one of high
// bytes, in the order of the layout, which VPUNPCKLBW and VPUNPCKHBW of the kernels undo.
//
// Compiled on x86_64 with -mavx2 -mfma -mf16c
#include "kernels/cpu/weights/bf16x12.h"

#include <immintrin.h>

#include "kernels/cpu/simd/avx2.h"
#include "kernels/cpu/weights/bf16x12-inl.h"
#include "kernels/cpu/weights/panel.h"

namespace moracle::cpu {

namespace {

struct V : Avx2<V> {};

constexpr std::int64_t kLine = 4 * kPanelRows;  // bytes of columns 2k and 2k + 1 of all rows, as plain numbers

struct Split {
  __m256i bytes;        // low ones; zero where a weight is outside
  __m256i codes;        // nibbles, of the high ones
  unsigned exceptions;  // a bit a byte
};

// 8 rows by 4 columns, of two lines of plain numbers.
Split split(const std::byte* line, std::uint32_t base) {
  const __m256i first = V::load_words(line);
  const __m256i second = V::load_words(line + kLine);
  const __m256i low = _mm256_set1_epi16(0xFF);
  const __m256i bytes = _mm256_packus_epi16(_mm256_and_si256(first, low), _mm256_and_si256(second, low));
  const __m256i high = _mm256_packus_epi16(_mm256_srli_epi16(first, 8), _mm256_srli_epi16(second, 8));
  const __m256i exponents = _mm256_and_si256(high, _mm256_set1_epi8(0x7F));
  const __m256i pair = _mm256_sub_epi8(exponents, _mm256_set1_epi8(static_cast<char>(base)));
  const __m256i inside = _mm256_cmpeq_epi8(_mm256_min_epu8(pair, _mm256_set1_epi8(kBf16x12Pairs - 1)), pair);
  const __m256i zero = _mm256_cmpeq_epi8(_mm256_or_si256(bytes, exponents), _mm256_setzero_si256());
  const __m256i sign = _mm256_srli_epi16(_mm256_andnot_si256(_mm256_set1_epi8(0x7F), high), 4);
  return {.bytes = _mm256_and_si256(bytes, inside),
          .codes = _mm256_or_si256(sign, _mm256_blendv_epi8(_mm256_set1_epi8(kBf16x12Pairs), pair, inside)),
          .exceptions = ~static_cast<unsigned>(_mm256_movemask_epi8(_mm256_or_si256(inside, zero)))};
}

// Adds the weights that a Split has outside. False: no room is left.
bool list_exceptions(unsigned outside, const std::byte* line, std::int64_t first_row, std::int64_t first_column,
                     Bf16x12Tail& tail) {
  for (; outside != 0; outside &= outside - 1) {
    if (tail.count == kMaxExceptions) return false;
    const int byte = __builtin_ctz(outside);
    const int row = byte / 16 * 4 + byte % 8 / 2;
    const int later_line = byte % 16 / 8;
    Bf16x12Tail::Exception& one = tail.exceptions[tail.count++];
    one.column = static_cast<std::uint32_t>(first_column + 2 * later_line + byte % 2);
    one.row = static_cast<std::uint16_t>(first_row + row);
    __builtin_memcpy(&one.weight, line + later_line * kLine + row * 4 + byte % 2 * 2, sizeof one.weight);
  }
  return true;
}

}  // namespace

bool pack_bf16x12(const std::byte* plain, std::int64_t steps, std::byte* out) {
  constexpr std::int64_t kRowsAtATime = 8;
  const std::uint32_t base = bf16x12_base<V>(reinterpret_cast<const std::uint16_t*>(plain), steps);
  Bf16x12Tail tail = {};
  tail.factor = bf16x12_factor<V>(base);
  for (std::int64_t column = 0; column < steps * kStepColumns; column += kStepColumns) {
    for (std::int64_t row = 0; row < kPanelRows; row += kRowsAtATime) {
      const std::byte* const line = plain + row * 4;
      const Split first = split(line, base);
      const Split second = split(line + 2 * kLine, base);
      std::byte* const to = out + row * 4;
      V::store_words(to, first.bytes);
      V::store_words(to + kLine, second.bytes);
      V::store_words(to + 2 * kLine, _mm256_or_si256(first.codes, _mm256_slli_epi16(second.codes, 4)));
      if ((first.exceptions | second.exceptions) == 0) continue;
      if (!list_exceptions(first.exceptions, line, row, column, tail)) return false;
      if (!list_exceptions(second.exceptions, line + 2 * kLine, row, column + 4, tail)) return false;
    }
    plain += 4 * kLine;
    out += 3 * kLine;
  }
  __builtin_memcpy(out, &tail, sizeof tail);
  return true;
}

}  // namespace moracle::cpu
