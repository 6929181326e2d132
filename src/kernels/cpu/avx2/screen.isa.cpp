// Screens of heads (screen.h) on AVX2; their finer bits and their packing, for every instruction set.
#include "kernels/cpu/screen.h"

#include <immintrin.h>

namespace moracle::cpu {
namespace {

#include "kernels/cpu/avx2/vectors256.inc"

inline __m256i load_line(const std::byte* at) {
  return load_words(at);
}
inline __m256i low_five(__m256i five) {
  return _mm256_and_si256(five, _mm256_set1_epi8(0x1F));
}
template <int I>
inline __m256i high_five(__m256i five, __m256i pairs) {
  const __m256i low = I == 0 ? pairs : _mm256_srli_epi16(pairs, 2 * I);
  return _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(five, 3), _mm256_set1_epi8(0x1C)),
                         _mm256_and_si256(low, _mm256_set1_epi8(0x03)));
}

// Sums of 16 bits: of four registers' codes up to 31 by 127, two columns each.
struct Products {
  __m256i sum = _mm256_setzero_si256();
  void add(__m256i codes, __m256i x) { sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, x)); }
  [[nodiscard]] __m256i quads() const { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }
};

#include "kernels/cpu/screen_body.inc"

inline float lane_sum(__m256 v) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

inline V::Reg magnitude(V::Reg v) {
  return _mm256_and_ps(v, _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF)));
}
inline float largest_lane(V::Reg v) {
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}
// 32 columns a byte each, in their order.
inline __m256i bytes_of(const V::Reg (&codes)[4]) {
  const auto words = [&](int i) {
    return _mm256_packs_epi32(_mm256_cvtps_epi32(codes[i]), _mm256_cvtps_epi32(codes[i + 1]));
  };
  const __m256i mixed = _mm256_packs_epi16(words(0), words(2));
  return _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

#include "kernels/cpu/screen_pack_body.inc"

// The 32 columns of half O of a block's F, times theirs of x, in 32 bits.
template <int O>
inline __m256i fine_products(const std::byte* nibbles, const std::int8_t* x) {
  const __m256i both = load_words(nibbles + O % 2 * 32);
  const __m256i codes = _mm256_and_si256(O < 2 ? both : _mm256_srli_epi16(both, 4), _mm256_set1_epi8(0x0F));
  return _mm256_maddubs_epi16(codes, load_words(reinterpret_cast<const std::byte*>(x + O * 32)));
}
inline __m256 fine_group(__m256i first, __m256i second) {
  return _mm256_cvtepi32_ps(_mm256_madd_epi16(_mm256_add_epi16(first, second), _mm256_set1_epi16(1)));
}

// Of 16 products up to 15 by 127 in 16 bits four are summed up; a lane takes 8 of a group's columns.
inline float multiply_finely(const ScreenInput& x, const std::byte* fine) {
  constexpr std::int64_t kBlocks = V::kLanes / kScreenGroups;  // whose scales fill a register
  const std::byte* const row_scales = fine + x.blocks * kFineBytes;
  __m256 total[kScreenGroups] = {V::zero(), V::zero()};
  __m256 offset = V::zero();
  for (std::int64_t b = 0; b < x.blocks; b += kBlocks) {
    const std::int64_t group = b * kScreenGroups;
    const __m256 scales = V::mul(V::load_u8(row_scales + group), V::load(x.scales + group));
    const __m256i start = load_words(reinterpret_cast<const std::byte*>(x.start + group));
    offset = V::fma(scales, V::number(start), offset);
    alignas(32) float of_group[V::kLanes];  // a broadcast from memory takes no vector unit
    _mm256_store_ps(of_group, scales);
    for (std::int64_t i = 0; i < kBlocks && b + i < x.blocks; ++i) {
      const std::byte* const nibbles = fine + (b + i) * kFineBytes;
      const std::int8_t* const codes = x.codes + (b + i) * kScreenBlock;
      const __m256 first = fine_group(fine_products<0>(nibbles, codes), fine_products<1>(nibbles, codes));
      const __m256 second = fine_group(fine_products<2>(nibbles, codes), fine_products<3>(nibbles, codes));
      total[0] = V::fma(first, _mm256_broadcast_ss(of_group + 2 * i), total[0]);
      total[1] = V::fma(second, _mm256_broadcast_ss(of_group + 2 * i + 1), total[1]);
    }
  }
  constexpr float kShare = static_cast<float>(kFineOffset) / kScreenOffset;  // of what the codes' offset takes away
  return lane_sum(V::fma(offset, V::set1(kShare), V::add(total[0], total[1])));
}

}  // namespace

void screen_panels_avx2(const ScreenArgs& args) {
  screen_panels(args);
}

float screen_row_finely(const ScreenInput& x, const std::byte* fine) {
  return multiply_finely(x, fine);
}

void pack_screen_row_avx2(const ScreenRow& row) {
  pack_screen_row(row);
}

}  // namespace moracle::cpu
