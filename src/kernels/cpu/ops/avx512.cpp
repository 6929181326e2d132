// The loops around matrix products, on 16 lanes.
//
// Compiled on x86_64 with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c
#include "kernels/cpu/simd/avx512.h"

#include "kernels/cpu/ops/activation_kernels.h"
#include "kernels/cpu/ops/activations-inl.h"
#include "kernels/cpu/ops/vector_ops-inl.h"

namespace moracle::cpu {
namespace {
struct V : Avx512<V> {};
}  // namespace

// Codes of up to 16 columns; `x / scale` is a true division, as publishers' tools do it.
template <>
struct Encoder<V> {
  struct Codes {
    __m512i lanes;
  };
  static Codes codes_of(const EncodeArgs& args, const float* x, std::int64_t left) {
    const __mmask16 some = left >= 16 ? static_cast<__mmask16>(0xFFFF) : static_cast<__mmask16>((1U << left) - 1U);
    const __m512 steps = V::round(V::div(_mm512_maskz_loadu_ps(some, x), V::set1(args.scale)));
    // max(steps, -most) is -most for a NaN, which no integer can hold.
    return {_mm512_cvtps_epi32(V::min(V::max(steps, V::set1(-args.most)), V::set1(args.most)))};
  }

  static std::int32_t total_of(__m512i sum, std::int32_t factor) { return factor * _mm512_reduce_add_epi32(sum); }
};

namespace {

// 16 bytes of two steps in the order of a nibble lane's bytes.
__m128i in_order(__m128i bytes, bool nibbles) {
  const __m128i order = _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
  return nibbles ? _mm_shuffle_epi8(bytes, order) : bytes;
}

// Of two steps, or of the last one.
void store_bytes(std::byte* out, __m128i bytes, std::int64_t left) {
  if (left > kStepColumns) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), bytes);
  } else {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out), bytes);
  }
}

void encode8(const EncodeArgs& args) {
  encode<V>(args, 1, [&](std::byte* out, const Encoder<V>::Codes& codes, std::int64_t left) {
    store_bytes(out, in_order(_mm512_cvtepi32_epi8(codes.lanes), args.nibbles), left);
  });
}

// High and low bytes apart. The high ones are rounded, so that the low ones, what is missing, are -128 .. 127.
void encode_split(const EncodeArgs& args) {
  encode<V>(args, 1, [&](std::byte* out, const Encoder<V>::Codes& codes, std::int64_t left) {
    const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(codes.lanes, _mm512_set1_epi32(128)), 8);
    store_bytes(out, in_order(_mm512_cvtepi32_epi8(high), args.nibbles), left);
    store_bytes(out + args.plane, in_order(_mm512_cvtepi32_epi8(codes.lanes), args.nibbles), left);
  });
}

void encode16(const EncodeArgs& args) {
  encode<V>(args, 2, [&](std::byte* out, const Encoder<V>::Codes& codes, std::int64_t left) {
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

constexpr ActivationKernels with(decltype(ActivationKernels::to_bf16) to_bf16) {
  return {.absolute_max = absolute_max<V>,
          .round_numbers = round_numbers<V>,
          .encode8 = encode8,
          .encode16 = encode16,
          .encode_split = encode_split,
          .to_bf16 = to_bf16,
          .activate = activate<V>,
          .weighted_sum = weighted_sum<V>};
}

}  // namespace

// Constants both: an initializer would run these instructions at the start of the program, on any CPU.
constinit const ActivationKernels kAvx512Activations = with(nullptr);
constinit const ActivationKernels kAvx512Bf16Activations = with(to_bf16_avx512bf16);

}  // namespace moracle::cpu

namespace moracle {

const VectorOps& avx512_vector_ops() {
  static constexpr VectorOps kOps = cpu::vector_ops_of<cpu::V>("avx512");
  return kOps;
}

}  // namespace moracle
