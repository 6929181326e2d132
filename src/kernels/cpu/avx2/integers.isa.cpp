// AVX2 micro-kernels of integer activation codes: sums in integers, nothing rounded before a group's sum is scaled.
//
// 16 bits: VPMADDWD multiplies two columns a lane, VPADDD adds them up. Two of the former a cycle, on two of Zen 3's
// four vector ports, leave the other two to the additions and to decoding: twice the products of f32 FMA. Weights are
// taken unsigned, as a mask or a shift yields them - a nibble costs 1.5 operations a register, a byte as much - and
// sums of the activations take the offset back. Activations published in 8 bits that meet bytes go the same way: their
// products fill 16 bits, so that VPMADDUBSW would have to be widened at once and gain nothing.
//
// E2M1 has no words by shifts: a lookup a register, so runs keep words that are decoded once.
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

#include "kernels/cpu/panel_run_body.inc"

#include "kernels/cpu/blocked_body.inc"

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
  static Weight load(const std::byte* p) { return load_words(p); }
  static void store(std::byte* p, Weight w) { store_words(p, w); }
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

// A word's high byte is zero, for which the table has 12: 256 times that comes to every number, and the offset takes it
// back.
struct E2m1Words : DoubledE2m1 {
  using Form = WordForm;
  static constexpr float kOffset = 12.0F + 256.0F * 12.0F;
  __m256i weight(const std::byte* at, int k, int r) const { return _mm256_shuffle_epi8(table, nibble_words(at, k, r)); }
};

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

}  // namespace

// No runs on decoded weights for int4, int8 and bytes: decoding costs as much as to store and load them.
constinit const IntegerKernels kAvx2IntegerKernels = {
    .q4 = all_scales<Q4>(),
    .q8 = {},
    .e2m1 = own_scales<E2m1, false>(),
    .q4_i16 = own_scales<Q4Words, true>(),
    .q8_i16 = all_scales<Q8Words>(),
    .e2m1_i16 = with_runs<E2m1Words>(own_scales<E2m1Words, false>(), kWordRunFrom),
    .q4_planes = {},
    .q8_planes = {},
    .e2m1_planes = {},
    .encode8 = encode8,
    .encode16 = encode16,
    .encode_planes = nullptr};

}  // namespace moracle::cpu
