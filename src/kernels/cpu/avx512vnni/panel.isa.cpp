// AVX-512 VNNI micro-kernels: integer activation codes, products of bytes, sums in 32-bit integers (VPDPBUSD).
//
// 16-bit activations are served as integers of 16 bits under a scale a group, in two planes of bytes: two multiply-adds
// instead of one, on the same decoded weights. Their error is 2^-16 of a group's largest value, below that of bf16's
// rounding, and the pair costs what one VDPBF16PS costs or half of it, while bytes are decoded in half the operations.
//
// VPDPBUSD multiplies unsigned weights by signed activations, four columns a lane. Weights are made unsigned by an
// offset (8, 128, or 12 for the doubled E2M1 numbers), which sums of the activations take back, as integers: nothing is
// rounded before a group's sum is scaled. A nibble lane yields columns 0, 4, 1, 5 under a mask and 2, 6, 3, 7 after one
// shift, and activations are stored in that order, so 16 rows x 8 columns cost a load, a shift and two masks (and two
// byte permutes for E2M1). For a tile of 6 tokens x 32 rows that is 8 such operations beside 24 multiply-adds; the
// multiply-adds bound it, at 64 columns x rows each.
#include <immintrin.h>

#include "kernels/cpu/avx512vnni/vnni_kernels.h"

namespace moracle::cpu {
namespace {

#include "kernels/cpu/avx512/vectors512.inc"

#include "kernels/cpu/panel_body.inc"

// Four bytes from memory to all lanes. A type of its own, because copies of neighbours would be merged into one wide
// load, and reach the lanes by way of two general registers.
using Lane [[gnu::may_alias, gnu::aligned(1)]] = std::int32_t;
inline __m512i broadcast_lane(const void* x) {
  return _mm512_set1_epi32(*static_cast<const Lane*>(x));
}

// Four columns a lane.
struct Int8Form {
  using Input = std::int8_t;
  using Weight = __m512i;
  using Sum = __m512i;
  static constexpr int kWidth = 4;
  static constexpr int chains(int tokens) { return tokens <= 2 ? 2 : 1; }  // integer sums have no order
  static Weight broadcast(const std::int8_t* x) { return broadcast_lane(x); }
  static Sum madd(Weight w, Weight x, Sum sum) { return _mm512_dpbusd_epi32(sum, w, x); }
  static Weight load(const std::byte* p) { return _mm512_loadu_si512(p); }
  static void store(std::byte* p, Weight w) { _mm512_storeu_si512(p, w); }
};

// Sums of code * x in integers. The offset is taken back at the start, or the zero point at the end.
struct IntegerSums {
  using Sum = __m512i;
  static Sum zero() { return _mm512_setzero_si512(); }
  static Sum add(Sum a, Sum b) { return _mm512_add_epi32(a, b); }
  static std::int32_t sum_of(const void* const* sums, std::int64_t t, std::int64_t g) {
    return static_cast<const std::int32_t*>(sums[t])[g];
  }
  static Sum start(const void* const* sums, std::int64_t t, std::int64_t g, float offset) {
    return _mm512_set1_epi32(-static_cast<std::int32_t>(offset) * sum_of(sums, t, g));
  }
  static __m512i shift(const std::byte* zeros, float) { return V::bytes(zeros); }
  static Sum shifted(Sum value, __m512i zeros, const void* const* sums, std::int64_t t, std::int64_t g) {
    return _mm512_sub_epi32(value, _mm512_mullo_epi32(zeros, _mm512_set1_epi32(sum_of(sums, t, g))));
  }
  static V::Reg number(Sum sum) { return _mm512_cvtepi32_ps(sum); }
  static Sum load_sum(const float* p) { return _mm512_loadu_si512(p); }
  static void store_sum(float* p, Sum sum) { _mm512_storeu_si512(p, sum); }
};
template <>
struct SumsOf<Int8Form> {
  using Type = IntegerSums;
};

// Sixteen bits in two planes; each has sums of its own.
struct Int16Form {
  using Input = std::int16_t;
  using Weight = __m512i;
  struct Four {
    __m512i high, low;
  };
  using Sum = Four;
  static constexpr int kWidth = 4;
  static constexpr int chains(int) { return 1; }
  static Four broadcast(const std::int16_t* x) { return {broadcast_lane(x), broadcast_lane(x + 2)}; }
  static Sum madd(Weight w, const Four& x, const Sum& sum) {
    return {_mm512_dpbusd_epi32(sum.high, w, x.high), _mm512_dpbusd_epi32(sum.low, w, x.low)};
  }
  static Weight load(const std::byte* p) { return _mm512_loadu_si512(p); }
  static void store(std::byte* p, Weight w) { _mm512_storeu_si512(p, w); }
};

// As IntegerSums, for both planes. Sums of the activations come in pairs.
struct PlaneSums {
  using Sum = Int16Form::Four;
  static Sum zero() { return {_mm512_setzero_si512(), _mm512_setzero_si512()}; }
  static Sum add(const Sum& a, const Sum& b) {
    return {_mm512_add_epi32(a.high, b.high), _mm512_add_epi32(a.low, b.low)};
  }
  static Sum start(const void* const* sums, std::int64_t t, std::int64_t g, float offset) {
    return {IntegerSums::start(sums, t, 2 * g, offset), IntegerSums::start(sums, t, 2 * g + 1, offset)};
  }
  static __m512i shift(const std::byte* zeros, float offset) { return IntegerSums::shift(zeros, offset); }
  static Sum shifted(const Sum& value, __m512i zeros, const void* const* sums, std::int64_t t, std::int64_t g) {
    return {IntegerSums::shifted(value.high, zeros, sums, t, 2 * g),
            IntegerSums::shifted(value.low, zeros, sums, t, 2 * g + 1)};
  }
  static V::Reg number(const Sum& sum) {
    return V::fma(_mm512_cvtepi32_ps(sum.high), V::set1(256.0F), _mm512_cvtepi32_ps(sum.low));
  }
  static Sum load_sum(const float* p) { return {_mm512_loadu_si512(p), _mm512_loadu_si512(p + kPanelRows)}; }
  static void store_sum(float* p, const Sum& sum) {
    _mm512_storeu_si512(p, sum.high);
    _mm512_storeu_si512(p + kPanelRows, sum.low);
  }
};
template <>
struct SumsOf<Int16Form> {
  using Type = PlaneSums;
};

#include "kernels/cpu/panel_run_body.inc"

inline __m512i nibbles(const std::byte* at, int k, int r) {
  const __m512i words = _mm512_loadu_si512(at + r * 64);
  return _mm512_and_si512(k == 0 ? words : _mm512_srli_epi16(words, 4), _mm512_set1_epi8(0x0F));
}

template <class F>
struct Q4 {
  using Form = F;
  static constexpr std::int64_t kBytes = 128;
  static constexpr float kOffset = 8.0F;
  static constexpr float kUnit = 1.0F;
  __m512i weight(const std::byte* at, int k, int r) const { return nibbles(at, k, r); }
};

// Twice the number, plus 12: 0 .. 24.
template <class F>
struct E2m1 {
  using Form = F;
  static constexpr std::int64_t kBytes = 128;
  static constexpr float kOffset = 12.0F;
  static constexpr float kUnit = 0.5F;
  __m512i table = _mm512_broadcast_i32x4(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  __m512i weight(const std::byte* at, int k, int r) const { return _mm512_shuffle_epi8(table, nibbles(at, k, r)); }
};

template <class F>
struct Q8 {
  using Form = F;
  static constexpr std::int64_t kBytes = 256;
  static constexpr float kOffset = 128.0F;
  static constexpr float kUnit = 1.0F;
  __m512i weight(const std::byte* at, int k, int r) const {
    return _mm512_xor_si512(_mm512_loadu_si512(at + k * 128 + r * 64), _mm512_set1_epi8(static_cast<char>(0x80)));
  }
};

// Codes of up to 16 columns as 32-bit lanes; `x / scale` is a true division, as publishers' tools do it.
inline __m512i codes_of(const EncodeArgs& args, std::int64_t i, float limit) {
  const std::int64_t left = args.count - i;
  const __mmask16 some = left >= 16 ? static_cast<__mmask16>(0xFFFF) : static_cast<__mmask16>((1U << left) - 1U);
  const __m512 steps = V::round(V::div(_mm512_maskz_loadu_ps(some, args.x + i), V::set1(args.scale)));
  // max(steps, -limit) is -limit for a NaN, which no integer can hold.
  return _mm512_cvtps_epi32(V::min(V::max(steps, V::set1(-limit)), V::set1(limit)));
}

// 16 bytes of two steps in the order of a nibble lane's bytes.
inline __m128i in_order(__m128i bytes, bool nibbles) {
  const __m128i order = _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
  return nibbles ? _mm_shuffle_epi8(bytes, order) : bytes;
}

void encode8(const EncodeArgs& args) {
  __m512i sum = _mm512_setzero_si512();
  std::byte* out = args.out;
  for (std::int64_t i = 0; i < args.count; i += 16, out += 16) {
    const __m512i codes = codes_of(args, i, 127.0F);
    sum = _mm512_add_epi32(sum, codes);
    const __m128i bytes = in_order(_mm512_cvtepi32_epi8(codes), args.nibbles);
    if (args.count - i > 8) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out), bytes);
    } else {
      _mm_storel_epi64(reinterpret_cast<__m128i*>(out), bytes);
    }
  }
  args.sums[0] = _mm512_reduce_add_epi32(sum);
}

void encode16(const EncodeArgs& args) {
  __m512i high_sum = _mm512_setzero_si512();
  __m512i low_sum = _mm512_setzero_si512();
  std::byte* out = args.out;
  for (std::int64_t i = 0; i < args.count; i += 16, out += 32) {
    const __m512i codes = codes_of(args, i, 32512.0F);
    const __m512i low = _mm512_srai_epi32(_mm512_slli_epi32(codes, 24), 24);
    const __m512i high = _mm512_srai_epi32(_mm512_sub_epi32(codes, low), 8);
    low_sum = _mm512_add_epi32(low_sum, low);
    high_sum = _mm512_add_epi32(high_sum, high);
    const __m128i lows = in_order(_mm512_cvtepi32_epi8(low), args.nibbles);
    const __m128i highs = in_order(_mm512_cvtepi32_epi8(high), args.nibbles);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_unpacklo_epi32(highs, lows));
    if (args.count - i > 8) _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 16), _mm_unpackhi_epi32(highs, lows));
  }
  args.sums[0] = _mm512_reduce_add_epi32(high_sum);
  args.sums[1] = _mm512_reduce_add_epi32(low_sum);
}

constexpr std::int64_t kRunFrom = 24;

}  // namespace

constinit const VnniKernels kVnniKernels = {.q4 = integer_kernels<Q4<Int8Form>>(kRunFrom),
                                            .q8 = integer_kernels<Q8<Int8Form>>(kRunFrom),
                                            .e2m1 = float_kernels<E2m1<Int8Form>>(kRunFrom),
                                            .q4_i16 = integer_kernels<Q4<Int16Form>>(kRunFrom),
                                            .q8_i16 = integer_kernels<Q8<Int16Form>>(kRunFrom),
                                            .e2m1_i16 = float_kernels<E2m1<Int16Form>>(kRunFrom),
                                            .encode8 = encode8,
                                            .encode16 = encode16};

}  // namespace moracle::cpu
