// Screens of heads (screen.h) on AVX2; their finer bits and their packing, for every instruction set.
#include "kernels/cpu/screen.h"

#include <immintrin.h>

namespace moracle::cpu {
namespace {

#include "kernels/cpu/avx2/vectors256.inc"

struct RowCodes {
  const std::byte* bytes;
  const std::byte* pairs;

  template <int O>
  __m256i columns(std::int64_t block) const {
    const __m256i five = load_words(bytes + block * kScreenBytes + O % 2 * 32);
    if constexpr (O < 2) return _mm256_and_si256(five, _mm256_set1_epi8(0x1F));
    const __m256i once =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(pairs + block * kScreenPairs)));
    // Two pairs of bits are a nibble; the lower 16 columns want its lower pair. A lookup, since shifts by different
    // numbers of bits take several operations on many machines.
    const __m256i pair_of_nibble = _mm256_setr_epi8(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3,  //
                                                    0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const __m256i nibbles = _mm256_and_si256(O == 2 ? once : _mm256_srli_epi16(once, 4), _mm256_set1_epi8(0x0F));
    return _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(five, 3), _mm256_set1_epi8(0x1C)),
                           _mm256_shuffle_epi8(pair_of_nibble, nibbles));
  }
};
struct FineCodes {
  const std::byte* nibbles;

  template <int O>
  __m256i columns(std::int64_t block) const {
    const __m256i both = load_words(nibbles + block * kFineBytes + O % 2 * 32);
    return _mm256_and_si256(O < 2 ? both : _mm256_srli_epi16(both, 4), _mm256_set1_epi8(0x0F));
  }
};
// By way of memory: a broadcast from there takes no vector unit.
struct GroupScales {
  alignas(32) float scales[8];
  explicit GroupScales(__m256 all) { _mm256_store_ps(scales, all); }
  template <int G>
  __m256 of() const {
    return _mm256_broadcast_ss(scales + G);
  }
};
inline __m256i products(__m256i codes, const std::int8_t* x) {
  return _mm256_maddubs_epi16(codes, load_words(reinterpret_cast<const std::byte*>(x)));
}
inline __m256i add_products(__m256i a, __m256i b) {
  return _mm256_add_epi16(a, b);
}
inline __m256i quads(__m256i sums) {
  return _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
}
inline float lane_sum(__m256 v) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

#include "kernels/cpu/screen_body.inc"

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

}  // namespace

void screen_rows_avx2(const ScreenArgs& args) {
  screen_rows(args);
}

float screen_row_finely(const ScreenInput& x, const std::byte* row, const std::byte* fine) {
  constexpr float kShare = static_cast<float>(kFineOffset) / kScreenOffset;
  return screen_row(FineCodes{fine}, row + x.blocks * (kScreenBytes + kScreenPairs), x, kShare, nullptr);
}

ScreenNorms pack_screen_row_avx2(const ScreenRow& row) {
  return pack_screen_row(row);
}

}  // namespace moracle::cpu
