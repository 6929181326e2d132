// AVX-512 VNNI micro-kernels: integer activation codes, sums in 32-bit integers, nothing rounded before a group's sum
// is scaled.
//
// Activations of 8 bits: VPDPBUSD multiplies unsigned weights by signed activations, four columns a lane. Weights are
// made unsigned by an offset (8, 128, or 12 for the doubled E2M1 numbers), which sums of the activations take back. A
// nibble lane yields columns 0, 4, 1, 5 under a mask and 2, 6, 3, 7 after one shift, and activations are stored in that
// order, so 16 rows x 8 columns cost a load, a shift and two masks (and two byte permutes for E2M1). For a tile of 6
// tokens x 32 rows that is 8 such operations beside 24 multiply-adds, at 64 columns x rows each, and they go to ports
// that those leave free; what a group costs at its end (a conversion, a product and a multiply-add a token and
// register) adds a fifth to groups of 128 columns and two thirds to groups of 32.
//
// 16-bit activations are served as integers of 16 bits under a scale a group, whose error is 2^-16 of a group's largest
// value, below that of bf16's rounding. VPDPWSSD multiplies two columns a lane, as VDPBF16PS does, and as often;
// weights become signed words by a permute of a table (nibbles) or by shifts (bytes). 12 sums and 12 totals of a tile
// of 6 fit the registers.
#include <immintrin.h>

#include "kernels/cpu/integer_kernels.h"

namespace moracle::cpu {
namespace {

#include "kernels/cpu/avx512/vectors512.inc"

#include "kernels/cpu/panel_body.inc"

#include "kernels/cpu/integer_sums.inc"

// Multiply-adds are written as instructions: GCC 12 copies each sum before and after an intrinsic in a loop, and spills
// where tiles are large: 585 GOP/s instead of 800 at 6 tokens on a core of Zen 5.

// Four columns a lane, in bytes.
struct Int8Form {
  using Input = std::int8_t;
  using Weight = __m512i;
  using Sum = __m512i;
  static constexpr int kWidth = 4;
  static constexpr int chains(int tokens) { return tokens <= 2 ? 2 : 1; }  // integer sums have no order
  static Weight broadcast(const std::int8_t* x) { return V::broadcast_lane(x); }
  static Sum madd(Weight w, Weight x, Sum sum) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
    return sum;
  }
};

// Two columns a lane, in 16 bits.
struct Int16Form {
  using Input = std::int16_t;
  using Weight = __m512i;
  using Sum = __m512i;
  static constexpr int kWidth = 2;
  static constexpr int chains(int tokens) { return tokens <= 2 ? 2 : 1; }
  static Weight broadcast(const std::int16_t* x) { return V::broadcast_lane(x); }
  static Sum madd(Weight w, Weight x, Sum sum) {
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
    return sum;
  }
};

// Two planes of such bytes, high ones and low ones.
struct PlanesForm : Int8Form {
  static constexpr int kPlanes = 2;
};

struct PlaneSums : UnsignedSums {
  static Sum joined(Sum high, Sum low) { return V::add(_mm512_slli_epi32(high, 8), low); }
};

template <>
struct SumsOf<PlanesForm> {
  using Type = PlaneSums;
};
template <>
struct SumsOf<Int8Form> {
  using Type = UnsignedSums;
};
template <>
struct SumsOf<Int16Form> {
  using Type = SignedSums;
};

inline __m512i nibbles(const std::byte* at, int k, int r) {
  const __m512i words = _mm512_loadu_si512(at + r * 64);
  return _mm512_and_si512(k == 0 ? words : _mm512_srli_epi16(words, 4), _mm512_set1_epi8(0x0F));
}

struct Q4 {
  using Form = Int8Form;
  static constexpr std::int64_t kBytes = 128;
  static constexpr float kOffset = 8.0F;
  static constexpr float kUnit = 1.0F;
  __m512i weight(const std::byte* at, int k, int r) const { return nibbles(at, k, r); }
};

// Twice the number, plus 12: 0 .. 24.
struct E2m1 {
  using Form = Int8Form;
  static constexpr std::int64_t kBytes = 128;
  static constexpr float kOffset = 12.0F;
  static constexpr float kUnit = 0.5F;
  __m512i table = _mm512_broadcast_i32x4(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  __m512i weight(const std::byte* at, int k, int r) const { return _mm512_shuffle_epi8(table, nibbles(at, k, r)); }
};

struct Q8 {
  using Form = Int8Form;
  static constexpr std::int64_t kBytes = 256;
  static constexpr float kOffset = 128.0F;
  static constexpr float kUnit = 1.0F;
  __m512i weight(const std::byte* at, int k, int r) const {
    return _mm512_xor_si512(_mm512_loadu_si512(at + k * 128 + r * 64), _mm512_set1_epi8(static_cast<char>(0x80)));
  }
};

// The same codes under activations in planes.
template <class D>
struct InPlanes : D {
  using Form = PlanesForm;
};

// The number of each code, twice: the permutation looks at five bits, of which the fifth is a neighbour's.
struct CodeWords {
  alignas(64) std::int16_t values[32];
};
constexpr CodeWords kIntegers = {
    {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7}};
constexpr CodeWords kE2m1Doubled = {
    {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12, 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}};

struct NibbleWords {
  using Form = Int16Form;
  static constexpr std::int64_t kBytes = 128;
  static constexpr float kOffset = 8.0F;
  __m512i table;
  explicit NibbleWords(const CodeWords& words) : table(_mm512_load_si512(words.values)) {}
  __m512i weight(const std::byte* at, int k, int r) const {
    const __m512i words = _mm512_loadu_si512(at + r * 64);
    return _mm512_permutexvar_epi16(k == 0 ? words : _mm512_srli_epi16(words, static_cast<unsigned>(4 * k)), table);
  }
};
struct Q4Words : NibbleWords {
  static constexpr float kUnit = 1.0F;
  Q4Words() : NibbleWords(kIntegers) {}
};
struct E2m1Words : NibbleWords {
  static constexpr float kUnit = 0.5F;
  E2m1Words() : NibbleWords(kE2m1Doubled) {}
};

// Columns 0 and 2 of a lane, then 1 and 3.
struct Q8Words {
  using Form = Int16Form;
  static constexpr std::int64_t kBytes = 256;
  static constexpr float kOffset = 128.0F;
  static constexpr float kUnit = 1.0F;
  __m512i weight(const std::byte* at, int k, int r) const {
    const __m512i words = _mm512_loadu_si512(at + k / 2 * 128 + r * 64);
    return _mm512_srai_epi16(k % 2 == 0 ? _mm512_slli_epi16(words, 8) : words, 8);
  }
};

// Codes of up to 16 columns; `x / scale` is a true division, as publishers' tools do it.
struct Codes {
  __m512i lanes;
};
inline Codes codes_of(const EncodeArgs& args, const float* x, std::int64_t left) {
  const __mmask16 some = left >= 16 ? static_cast<__mmask16>(0xFFFF) : static_cast<__mmask16>((1U << left) - 1U);
  const __m512 steps = V::round(V::div(_mm512_maskz_loadu_ps(some, x), V::set1(args.scale)));
  // max(steps, -most) is -most for a NaN, which no integer can hold.
  return {_mm512_cvtps_epi32(V::min(V::max(steps, V::set1(-args.most)), V::set1(args.most)))};
}

inline std::int32_t total_of(__m512i sum, std::int32_t factor) {
  return factor * _mm512_reduce_add_epi32(sum);
}

#include "kernels/cpu/encode_body.inc"

// 16 bytes of two steps in the order of a nibble lane's bytes.
inline __m128i in_order(__m128i bytes, bool nibbles) {
  const __m128i order = _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
  return nibbles ? _mm_shuffle_epi8(bytes, order) : bytes;
}

// Of two steps, or of the last one.
inline void store_bytes(std::byte* out, __m128i bytes, std::int64_t left) {
  if (left > kStepColumns) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), bytes);
  } else {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out), bytes);
  }
}

void encode8(const EncodeArgs& args) {
  encode(args, 1, [&](std::byte* out, const Codes& codes, std::int64_t left) {
    store_bytes(out, in_order(_mm512_cvtepi32_epi8(codes.lanes), args.nibbles), left);
  });
}

// High and low bytes apart. The high ones are rounded, so that the low ones, what is missing, are -128 .. 127.
void encode_planes(const EncodeArgs& args) {
  encode(args, 1, [&](std::byte* out, const Codes& codes, std::int64_t left) {
    const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(codes.lanes, _mm512_set1_epi32(128)), 8);
    store_bytes(out, in_order(_mm512_cvtepi32_epi8(high), args.nibbles), left);
    store_bytes(out + args.plane, in_order(_mm512_cvtepi32_epi8(codes.lanes), args.nibbles), left);
  });
}

void encode16(const EncodeArgs& args) {
  encode(args, 2, [&](std::byte* out, const Codes& codes, std::int64_t left) {
    __m256i words = _mm512_cvtepi32_epi16(codes.lanes);
    if (!args.nibbles) {  // 0, 2, 1, 3 of each four
      words = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words, _MM_SHUFFLE(3, 1, 2, 0)), _MM_SHUFFLE(3, 1, 2, 0));
    }
    if (left > kStepColumns) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), words);
    } else {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_castsi256_si128(words));
    }
  });
}

}  // namespace

// No runs on decoded weights: decoding to bytes costs less than to store and load them.
constinit const IntegerKernels kVnniKernels = {.q4 = all_scales<Q4>(),
                                               .q8 = all_scales<Q8>(),
                                               .e2m1 = own_scales<E2m1, false>(),
                                               .q4_i16 = own_scales<Q4Words, true>(),
                                               .q8_i16 = own_scales<Q8Words, true>(),
                                               .e2m1_i16 = own_scales<E2m1Words, false>(),
                                               .q4_planes = own_scales<InPlanes<Q4>, true>(),
                                               .q8_planes = own_scales<InPlanes<Q8>, true>(),
                                               .e2m1_planes = own_scales<InPlanes<E2m1>, false>(),
                                               .encode8 = encode8,
                                               .encode16 = encode16,
                                               .encode_planes = encode_planes};

}  // namespace moracle::cpu
