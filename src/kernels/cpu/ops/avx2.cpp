// The loops around matrix products, on 8 lanes.
//
// Compiled on x86_64 with -mavx2 -mfma -mf16c
#include "kernels/cpu/simd/avx2.h"

#include "kernels/cpu/ops/activation_kernels.h"
#include "kernels/cpu/ops/activations-inl.h"
#include "kernels/cpu/ops/vector_ops-inl.h"

namespace moracle::cpu {
namespace {
struct V : Avx2<V> {};
}  // namespace

// Codes of up to 8 columns as 16-bit words; `x / scale` is a true division, as publishers' tools do it.
template <>
struct Encoder<V> {
  struct Codes {
    __m256i lanes;
    __m128i words;
  };
  static Codes codes_of(const EncodeArgs& args, const float* x, std::int64_t left) {
    const auto columns = static_cast<int>(left < 8 ? left : 8);
    const __m256i some = _mm256_cmpgt_epi32(_mm256_set1_epi32(columns), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    const __m256 steps = V::round(V::div(_mm256_maskload_ps(x, some), V::set1(args.scale)));
    // max(steps, -most) is -most for a NaN, which no integer can hold.
    const __m256i lanes = _mm256_cvtps_epi32(V::min(V::max(steps, V::set1(-args.most)), V::set1(args.most)));
    return {lanes, _mm_packs_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1))};
  }

  // The sum of all lanes, times the factor, modulo 2^32.
  static std::int32_t total_of(__m256i sum, std::int32_t factor) {
    alignas(32) std::uint32_t lanes[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sum);
    std::uint32_t total = 0;
    for (const std::uint32_t lane : lanes) total += lane;
    return static_cast<std::int32_t>(total * static_cast<std::uint32_t>(factor));
  }
};

namespace {

// The sums of even and of odd lanes, times the factor, modulo 2^16 each.
inline std::uint32_t pair_of(__m256i sum, std::int32_t factor) {
  alignas(32) std::uint32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sum);
  const auto times = static_cast<std::uint32_t>(factor);
  const std::uint32_t even = (lanes[0] + lanes[2] + lanes[4] + lanes[6]) * times;
  const std::uint32_t odd = (lanes[1] + lanes[3] + lanes[5] + lanes[7]) * times;
  return (even & 0xFFFFU) | odd << 16U;
}

void encode8(const EncodeArgs& args) {
  const __m128i order = _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
  __m256i block = _mm256_setzero_si256();
  std::int64_t in_block = 0;  // columns
  std::uint32_t* pair = args.pairs;
  encode<V>(args, 1, [&](std::byte* out, const Encoder<V>::Codes& codes, std::int64_t left) {
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
  encode<V>(args, 2, [&](std::byte* out, const Encoder<V>::Codes& codes, std::int64_t) {
    __m128i words = codes.words;
    if (!args.nibbles) {  // 0, 2, 1, 3 of each four
      words = _mm_shufflehi_epi16(_mm_shufflelo_epi16(words, _MM_SHUFFLE(3, 1, 2, 0)), _MM_SHUFFLE(3, 1, 2, 0));
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), words);
  });
}

}  // namespace

constinit const ActivationKernels kAvx2Activations{.absolute_max = absolute_max<V>,
                                                   .round_numbers = round_numbers<V>,
                                                   .encode8 = encode8,
                                                   .encode16 = encode16,
                                                   .encode_split = nullptr,
                                                   .to_bf16 = nullptr,
                                                   .activate = activate<V>,
                                                   .weighted_sum = weighted_sum<V>};

}  // namespace moracle::cpu

namespace moracle {

const VectorOps& avx2_vector_ops() {
  static constexpr VectorOps kOps = cpu::vector_ops_of<cpu::V>("avx2");
  return kOps;
}

}  // namespace moracle
