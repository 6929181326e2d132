// AVX2 micro-kernels of integer activation codes: sums in integers, nothing rounded before a group's sum is scaled.
//
// 16 bits: VPMADDWD multiplies two columns a lane, VPADDD adds them up. Two of the former a cycle, on two of Zen 3's
// four vector ports, leave the other two to the additions and to decoding: twice the products of f32 FMA. Weights are
// taken unsigned, as a mask or a shift yields them - a nibble costs 1.5 operations a register, a byte as much - and
// sums of the activations take the offset back. Activations published in 8 bits that meet bytes go the same way: their
// products fill 16 bits, so that VPMADDUBSW would have to be widened at once and gain nothing.
//
// E2M1 has no words by shifts: a lookup a register, so runs keep words that are decoded once, 12 sums of 6 tokens, two
// words, a broadcast and a product in 16 registers.
//
// 8 bits by nibbles: VPMADDUBSW multiplies four columns a lane and leaves two sums of 16 bits. To these comes the sum
// of their activations times minus the offset, so that what they hold in the end is the sum of signed products,
// whatever wrapped around on the way: 64 columns of int4 (8 x 127 x 32 < 2^15) or 32 of the doubled E2M1 numbers (12 x
// 127 x 16). One multiplication by ones makes 32 bits of two of them. An addition runs on any of the four ports, those
// that multiply among them: 0.62 cycles a product and its addition on Zen 3, where the products alone would take 0.5.
//
// 16 registers hold the sums of 5 tokens by half a panel, two weights, a broadcast, a product, a mask and a table.
#include <immintrin.h>

#include <type_traits>

#include "kernels/cpu/integer_kernels.h"

namespace moracle::cpu {
namespace {

#include "kernels/cpu/avx2/vectors256.inc"

#include "kernels/cpu/panel_body.inc"

#include "kernels/cpu/blocked_body.inc"

#include "kernels/cpu/folded_body.inc"

#include "kernels/cpu/word_run_body.inc"

#include "kernels/cpu/integer_sums.inc"

// Multiply-adds are written as instructions: GCC reorders integer additions, (a + b) + (c + d), and spills the products
// that it keeps for it.
struct IntegerForm {
  using Weight = __m256i;
  using Sum = __m256i;
  static constexpr int chains(int) { return 1; }  // an addition takes one cycle
};

// Two columns a lane, in 16 bits.
struct WordForm : IntegerForm {
  using Input = std::int16_t;
  static constexpr int kWidth = 2;
  static Weight broadcast(const std::int16_t* x) { return V::broadcast_lane(x); }
  static Sum madd(Weight w, Weight x, Sum sum) {
    __m256i product;
    __asm__("vpmaddwd %2, %3, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(w), "x"(x));
    return sum;
  }
};

// Four columns a lane, in bytes; signed sums of so many steps fit 16 bits.
template <int Steps>
struct ByteForm : IntegerForm {
  using Input = std::int8_t;
  static constexpr int kWidth = 4;
  static constexpr int kBlockSteps = Steps;
  static Weight broadcast(const std::int8_t* x) { return V::broadcast_lane(x); }
  static Sum multiply(Weight w, Weight x) {
    Sum product;
    __asm__("vpmaddubsw %2, %1, %0" : "=x"(product) : "x"(w), "x"(x));
    return product;
  }
  static Sum add(Sum a, Sum b) { return _mm256_add_epi16(a, b); }
  static Sum madd(Weight w, Weight x, Sum sum) {
    __m256i product;
    __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(w), "x"(x));
    return sum;
  }
  static Sum start(const void* const* sums, std::int64_t t, std::int64_t block) {
    return V::broadcast_lane(static_cast<const std::int32_t*>(sums[t]) + block);
  }
  static __m256i widened(Sum sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }
  // Halves by scales of their own, and what is in memory.
  static __m256i add_scaled(Sum sum, __m256i scales, const __m256i& before) {
    __asm__("vpmaddwd %1, %0, %0\n\tvpaddd %2, %0, %0" : "+x"(sum) : "x"(scales), "m"(before));
    return sum;
  }
};

template <>
struct SumsOf<WordForm> {
  using Type = UnsignedSums;
};
template <int Steps>
struct SumsOf<ByteForm<Steps>> {
  using Type = SignedSums;  // blocks take the offset back
};

// Columns 0, 4, 1, 5 of a lane, or 2, 6, 3, 7.
inline __m256i nibbles(const std::byte* at, bool second, int r) {
  const __m256i words = load_words(at + r * 32);
  return _mm256_and_si256(second ? _mm256_srli_epi16(words, 4) : words, _mm256_set1_epi8(0x0F));
}

// Even or odd bytes as words.
inline __m256i widened(__m256i bytes, bool odd) {
  return odd ? _mm256_srli_epi16(bytes, 8) : _mm256_and_si256(bytes, _mm256_set1_epi16(0xFF));
}

struct Int4 {
  static constexpr std::int64_t kBytes = 128;
  static constexpr float kOffset = 8.0F;
  static constexpr float kUnit = 1.0F;
};
struct Q4 : Int4 {
  using Form = ByteForm<8>;
  __m256i weight(const std::byte* at, int k, int r) const { return nibbles(at, k == 1, r); }
};
// Nibble k of every word.
inline __m256i nibble_words(const std::byte* at, int k, int r) {
  const __m256i words = load_words(at + r * 32);
  if (k == 3) return _mm256_srli_epi16(words, 12);
  return _mm256_and_si256(k == 0 ? words : _mm256_srli_epi16(words, 4 * k), _mm256_set1_epi16(0x0F));
}
struct Q4Words : Int4 {
  using Form = WordForm;
  __m256i weight(const std::byte* at, int k, int r) const { return nibble_words(at, k, r); }
};

// Twice the number, plus 12: 0 .. 24.
struct DoubledE2m1 {
  static constexpr std::int64_t kBytes = 128;
  static constexpr float kOffset = 12.0F;
  static constexpr float kUnit = 0.5F;
  __m256i table = _mm256_broadcastsi128_si256(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
};
struct E2m1 : DoubledE2m1 {
  using Form = ByteForm<4>;
  __m256i weight(const std::byte* at, int k, int r) const { return _mm256_shuffle_epi8(table, nibbles(at, k == 1, r)); }
};

// What a scale's significand is multiplied by, by exponent: 2^(exponent - base) in two bytes, or zero where that is not
// one of 2^0 .. 2^9.
struct ScalePowers {
  alignas(16) std::uint8_t low[16];
  alignas(16) std::uint8_t high[16];
};
constexpr ScalePowers powers_from(int base) {
  ScalePowers powers = {};
  for (int exponent = 1; exponent < 16; ++exponent) {
    const int power = exponent - base;
    if (power >= 0 && power < 8) powers.low[exponent] = static_cast<std::uint8_t>(1 << power);
    if (power >= 8 && power < kPairExponents) powers.high[exponent] = static_cast<std::uint8_t>(1 << (power - 8));
  }
  return powers;
}
struct PairPowers {
  ScalePowers of[kPairBases][2];  // base, part
};
constexpr PairPowers make_pair_powers() {
  PairPowers powers = {};
  for (int i = 0; i < kPairBases; ++i)
    for (int part = 0; part < 2; ++part) powers.of[i][part] = powers_from(1 + i - part * kPairExponents);
  return powers;
}
constexpr PairPowers kPairPowers = make_pair_powers();
inline __m256i both_halves(const std::uint8_t* table) {
  return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table)));
}

struct E2m1Pairs : E2m1 {
  using Powers = ScalePowers;
  static const Powers* powers(int base) { return kPairPowers.of[base - 1]; }
  // Of a register's rows, two scales a lane, up to 15 x 2^9: times 12 x 127 x 16 and in four pairs, 2^31 is not
  // reached. High bytes of the indices are zero, for which the tables have zero; the low bytes of the second are zero
  // or above 127.
  static __m256i scales(const std::byte* at, const Powers& powers) {
    const __m256i codes = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
    const __m256i low = _mm256_shuffle_epi8(both_halves(powers.low), _mm256_srli_epi16(codes, 4));
    const __m256i high = _mm256_shuffle_epi8(both_halves(powers.high), _mm256_slli_epi16(codes, 4));
    const __m256i significands = _mm256_and_si256(codes, _mm256_set1_epi16(15));
    return _mm256_mullo_epi16(significands, _mm256_or_si256(low, high));
  }
};
// A word's high byte is zero, for which the table has 12: 256 times that comes to every number, and the offset takes it
// back.
struct E2m1Words : DoubledE2m1 {
  using Form = WordForm;
  static constexpr float kOffset = 12.0F + 256.0F * 12.0F;
  __m256i weight(const std::byte* at, int k, int r) const { return _mm256_shuffle_epi8(table, nibble_words(at, k, r)); }
};

struct E2m1FoldedAlone;
// The same under scales that are multipliers and a power of two (e4m3_parts), and as runs keep it.
struct E2m1Folded : E2m1Words {
  using Alone = E2m1FoldedAlone;
  static constexpr int kOrder[4] = {0, 1, 2, 3};
  static __m256i start(__m256i sum) { return sum; }
  // Twice the number.
  __m256i doubled = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));

  static __m256i significands(__m256i scales) { return _mm256_and_si256(scales, _mm256_set1_epi32(0x0F)); }
  static __m256i exponents(__m256i scales) { return _mm256_srli_epi32(scales, 4); }
  // The smallest exponent of each row, in a byte: of `more` groups' scales, `stride` bytes apart, and of the `last`.
  static void base(const std::byte* scales, std::int64_t stride, std::int64_t more, const std::byte* last,
                   std::byte* out) {
    __m256i least = load_words(last);
    for (std::int64_t i = 0; i < more; ++i, scales += stride) least = _mm256_min_epu8(least, load_words(scales));
    store_words(out, _mm256_and_si256(_mm256_srli_epi16(least, 4), _mm256_set1_epi8(0x0F)));
  }
  static __m256i multipliers(const std::byte* scales, __m256i base) {
    const __m256i bytes = V::bytes(scales);
    return _mm256_sllv_epi32(significands(bytes), _mm256_sub_epi32(exponents(bytes), base));
  }
  static __m256 unit(__m256i base) {  // bias 7, 3 bits behind the point
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(base, _mm256_set1_epi32(127 - 10)), 23));
  }
  // Both halves of a lane, 256 times as large: what the product with 256 times the number has above 2^16 is exact.
  static __m256i in_halves(__m256i multipliers) {
    return _mm256_or_si256(_mm256_slli_epi32(multipliers, 8), _mm256_slli_epi32(multipliers, 24));
  }
  // A step's slots of register r's rows, times their multipliers. A number goes to a word's high byte, as 256 times
  // itself.
  void keep(const std::byte* at, __m256i multipliers, int r, std::byte* out) const {
    const __m256i top = _mm256_set1_epi16(static_cast<short>(0xFF00));
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; ++odd) {
      const __m256i numbers = _mm256_shuffle_epi8(doubled, nibbles(at, odd == 1, r));  // nibbles odd and odd + 2
      const __m256i first = _mm256_mulhi_epi16(_mm256_slli_epi16(numbers, 8), multipliers);
      const __m256i second = _mm256_mulhi_epi16(_mm256_and_si256(numbers, top), multipliers);
      store_words(out + odd * 128 + r * 32, first);
      store_words(out + (odd + 2) * 128 + r * 32, second);
    }
  }
};

// One token has registers to look up two slots at a time, as bytes. Its numbers have no 256 x 12 in them, so of the
// offset's sum it wants the 257th part: modulo 2^32, a product.
struct E2m1FoldedAlone : E2m1Folded {
  static constexpr int kOrder[4] = {0, 2, 1, 3};
  static __m256i start(__m256i sum) { return V::mul(sum, V::lanes(1 - (1 << 8) + (1 << 16) - (1 << 24))); }
  __m256i weight(const std::byte* at, int k, int r) const {
    return widened(_mm256_shuffle_epi8(table, nibbles(at, k % 2 == 1, r)), k / 2 == 1);
  }
};

// Whether groups [begin, end) may be a block: no multiplier is above 127, as in_halves() has it, and a sum of products,
// each of up to 12 and kMostWord, is below 2^31.
bool add_up(const FoldArgs& args, std::int64_t begin, std::int64_t end) {
  constexpr int kMostShift = 7;
  const std::int64_t group_bytes = args.steps * E2m1Folded::kBytes + kPanelRows;
  const std::int64_t missing = end == args.groups ? (args.steps - args.last_steps) * E2m1Folded::kBytes : 0;
  const std::byte* const first = args.panel + (begin + 1) * group_bytes - kPanelRows;
  const std::byte* const last = args.panel + end * group_bytes - missing - kPanelRows;
  alignas(32) std::byte base[kPanelRows];
  E2m1Folded::base(first, group_bytes, end - begin - 1, last, base);
  const auto columns = static_cast<int>(args.steps * kStepColumns);
  const __m256i most_sum = _mm256_set1_epi32(0x7FFFFFFF / (12 * kMostWord) / columns);
  __m256i too_large = _mm256_setzero_si256();
  for (int row = 0; row < kPanelRows; row += V::kLanes) {
    __m256i sum = _mm256_setzero_si256();
    for (std::int64_t g = begin; g < end; ++g) {
      const __m256i scales = V::bytes((g + 1 == end ? last : first + (g - begin) * group_bytes) + row);
      const __m256i excess = _mm256_sub_epi32(E2m1Folded::exponents(scales), V::bytes(base + row));
      const __m256i shift = _mm256_min_epi32(excess, _mm256_set1_epi32(kMostShift));
      const __m256i multipliers = _mm256_sllv_epi32(E2m1Folded::significands(scales), shift);
      too_large = _mm256_or_si256(too_large, _mm256_cmpgt_epi32(multipliers, _mm256_set1_epi32(127)));
      sum = _mm256_add_epi32(sum, multipliers);
    }
    too_large = _mm256_or_si256(too_large, _mm256_cmpgt_epi32(sum, most_sum));
  }
  return _mm256_testz_si256(too_large, too_large) != 0;
}

void fold(const FoldArgs& args) {
  std::uint8_t* tail = args.tail;
  for (std::int64_t begin = 0; begin < args.groups; begin += args.span_groups) {
    const std::int64_t end = begin + args.span_groups < args.groups ? begin + args.span_groups : args.groups;
    const auto all_add_up = [&](std::int64_t groups) {
      for (std::int64_t g = begin; g < end; g += groups) {
        if (!add_up(args, g, g + groups < end ? g + groups : end)) return false;
      }
      return true;
    };
    std::int64_t groups = args.span_groups;
    while (groups > 1 && !all_add_up(groups)) groups /= 2;  // a power of two
    *tail++ = static_cast<std::uint8_t>(groups);
  }
}

// Columns 0 and 2 of a lane, then 1 and 3.
struct Q8Words {
  using Form = WordForm;
  static constexpr std::int64_t kBytes = 256;
  static constexpr float kOffset = 128.0F;
  static constexpr float kUnit = 1.0F;
  __m256i weight(const std::byte* at, int k, int r) const {
    const __m256i codes = load_words(at + k / 2 * 128 + r * 32);
    return widened(_mm256_xor_si256(codes, _mm256_set1_epi8(static_cast<char>(0x80))), k % 2 == 1);
  }
};

// Codes of up to 8 columns as 16-bit words; `x / scale` is a true division, as publishers' tools do it.
struct Codes {
  __m256i lanes;
  __m128i words;
};
inline Codes codes_of(const EncodeArgs& args, const float* x, std::int64_t left) {
  const auto columns = static_cast<int>(left < 8 ? left : 8);
  const __m256i some = _mm256_cmpgt_epi32(_mm256_set1_epi32(columns), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  const __m256 steps = V::round(V::div(_mm256_maskload_ps(x, some), V::set1(args.scale)));
  // max(steps, -most) is -most for a NaN, which no integer can hold.
  const __m256i lanes = _mm256_cvtps_epi32(V::min(V::max(steps, V::set1(-args.most)), V::set1(args.most)));
  return {lanes, _mm_packs_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1))};
}

// The sum of all lanes, times the factor, modulo 2^32.
inline std::int32_t total_of(__m256i sum, std::int32_t factor) {
  alignas(32) std::uint32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sum);
  std::uint32_t total = 0;
  for (const std::uint32_t lane : lanes) total += lane;
  return static_cast<std::int32_t>(total * static_cast<std::uint32_t>(factor));
}

// The sums of even and of odd lanes, times the factor, modulo 2^16 each.
inline std::uint32_t pair_of(__m256i sum, std::int32_t factor) {
  alignas(32) std::uint32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sum);
  const auto times = static_cast<std::uint32_t>(factor);
  const std::uint32_t even = (lanes[0] + lanes[2] + lanes[4] + lanes[6]) * times;
  const std::uint32_t odd = (lanes[1] + lanes[3] + lanes[5] + lanes[7]) * times;
  return (even & 0xFFFFU) | odd << 16U;
}

#include "kernels/cpu/encode_body.inc"

void encode8(const EncodeArgs& args) {
  const __m128i order = _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
  __m256i block = _mm256_setzero_si256();
  std::int64_t in_block = 0;  // columns
  std::uint32_t* pair = args.pairs;
  encode(args, 1, [&](std::byte* out, const Codes& codes, std::int64_t left) {
    const __m128i bytes = _mm_packs_epi16(codes.words, codes.words);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out), args.nibbles ? _mm_shuffle_epi8(bytes, order) : bytes);
    if (args.pairs == nullptr) return;
    block = _mm256_add_epi32(block, codes.lanes);
    in_block += kStepColumns;
    if (in_block < args.pair_columns && left > kStepColumns) return;
    *pair++ = pair_of(block, args.pair_factor);
    block = _mm256_setzero_si256();
    in_block = 0;
  });
}

void encode16(const EncodeArgs& args) {
  encode(args, 2, [&](std::byte* out, const Codes& codes, std::int64_t) {
    __m128i words = codes.words;
    if (!args.nibbles) {  // 0, 2, 1, 3 of each four
      words = _mm_shufflehi_epi16(_mm_shufflelo_epi16(words, _MM_SHUFFLE(3, 1, 2, 0)), _MM_SHUFFLE(3, 1, 2, 0));
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), words);
  });
}

// Tiles that decode for themselves are as fast up to here.
constexpr std::int64_t kWordRunFrom = 10;

constexpr CodeKernels e2m1_words() {
  CodeKernels kernels = own_scales<E2m1Words, false>();
  kernels.run = multiply_word_run<E2m1Folded>;
  kernels.run_from = kWordRunFrom;
  return kernels;
}

constexpr CodeKernels e2m1_folded() {
  CodeKernels kernels = folded_tiles<E2m1Folded>();
  kernels.run = multiply_word_run<E2m1Folded>;
  kernels.run_from = kWordRunFrom;
  kernels.fold = fold;
  return kernels;
}

}  // namespace

// No runs on decoded weights for int4, int8 and bytes: decoding costs as much as to store and load them.
constinit const IntegerKernels kAvx2IntegerKernels = {.q4 = all_scales<Q4>(),
                                                      .q8 = {},
                                                      .e2m1 = own_scales<E2m1, false>(),
                                                      .e2m1_pairs = own_scales<E2m1Pairs, false>(),
                                                      .q4_i16 = own_scales<Q4Words, true>(),
                                                      .q8_i16 = all_scales<Q8Words>(),
                                                      .e2m1_i16 = e2m1_words(),
                                                      .q4_planes = {},
                                                      .q8_planes = {},
                                                      .e2m1_planes = {},
                                                      .e2m1_folded = e2m1_folded(),
                                                      .encode8 = encode8,
                                                      .encode16 = encode16,
                                                      .encode_planes = nullptr};

}  // namespace moracle::cpu
