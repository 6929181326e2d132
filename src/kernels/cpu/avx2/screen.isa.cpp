// Screens of heads (screen.h) on AVX2; their finer bits and their packing, for every instruction set.
#include "kernels/cpu/screen.h"

#include <immintrin.h>

namespace moracle::cpu {
namespace {

#include "kernels/cpu/avx2/vectors256.inc"

// Nibbles of columns 32 O.
template <int O>
inline __m256i nibbles_of(const std::byte* at) {
  const __m256i nibbles = load_words(at + O % 2 * 32);
  return _mm256_and_si256(O < 2 ? nibbles : _mm256_srli_epi16(nibbles, 4), _mm256_set1_epi8(0x0F));
}
struct RowCodes {
  const std::byte* nibbles;
  const std::byte* bits;

  // Bits 2 O and 2 O + 1 of a byte go to bit 4, in the lower and the upper 128 bits.
  template <int O>
  __m256i columns(std::int64_t block) const {
    const __m128i once = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bits + block * kScreenBits));
    __m256i fifth = _mm256_broadcastsi128_si256(once);
    if constexpr (O == 0) fifth = _mm256_sllv_epi32(fifth, _mm256_setr_epi32(4, 4, 4, 4, 3, 3, 3, 3));
    if constexpr (O == 1) fifth = _mm256_sllv_epi32(fifth, _mm256_setr_epi32(2, 2, 2, 2, 1, 1, 1, 1));
    if constexpr (O == 2) fifth = _mm256_srlv_epi32(fifth, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
    if constexpr (O == 3) fifth = _mm256_srlv_epi32(fifth, _mm256_setr_epi32(2, 2, 2, 2, 3, 3, 3, 3));
    return _mm256_or_si256(nibbles_of<O>(nibbles + block * kScreenNibbles),
                           _mm256_and_si256(fifth, _mm256_set1_epi8(0x10)));
  }
};
struct FineCodes {
  const std::byte* nibbles;

  template <int O>
  __m256i columns(std::int64_t block) const {
    return nibbles_of<O>(nibbles + block * kScreenNibbles);
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
  return _mm256_madd_epi16(_mm256_maddubs_epi16(codes, load_words(reinterpret_cast<const std::byte*>(x))),
                           _mm256_set1_epi16(1));
}
inline float lane_sum(__m256 v) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

#include "kernels/cpu/screen_body.inc"

inline __m256 magnitude(__m256 v) {
  return _mm256_and_ps(v, _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF)));
}

inline float largest_lane(__m256 v) {
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

inline float group_magnitude(const float* weights) {
  __m256 most = magnitude(_mm256_loadu_ps(weights));
  for (int i = 8; i < kScreenGroup; i += 8) most = V::max(most, magnitude(_mm256_loadu_ps(weights + i)));
  return largest_lane(most);
}

// A unit that is or would be no normal number leaves the codes at zero, and the whole weight as error.
inline float unit_of(float most) {
  const float unit = most / (kScreenMost * 255.0F);
  return unit >= 0x1p-126F ? unit : 0.0F;
}

// Scales of a block's groups from their largest weights: in units, up, so that those have a code. Rounding may still
// ask for 256.
inline void encode_scales(float* groups, float unit, std::byte* out) {
  const __m128 wanted = _mm_mul_ps(_mm_loadu_ps(groups), _mm_set1_ps(unit > 0.0F ? 1.0F / (kScreenMost * unit) : 0.0F));
  const __m128 whole = _mm_min_ps(_mm_ceil_ps(wanted), _mm_set1_ps(255.0F));
  _mm_storeu_ps(groups, _mm_mul_ps(whole, _mm_set1_ps(unit)));
  const __m128i words = _mm_packus_epi32(_mm_cvtps_epi32(whole), _mm_setzero_si128());
  const std::int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
  __builtin_memcpy(out, &bytes, sizeof bytes);
}

// 32 columns a byte each, in their order.
inline __m256i bytes_of(const __m256 (&codes)[4], int offset) {
  const auto words = [&](int i) {
    return _mm256_packs_epi32(_mm256_cvtps_epi32(codes[i]), _mm256_cvtps_epi32(codes[i + 1]));
  };
  const __m256i mixed = _mm256_packs_epi16(words(0), words(2));
  const __m256i ordered = _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  return _mm256_add_epi8(ordered, _mm256_set1_epi8(static_cast<char>(offset)));
}

struct Squares {
  __m256 error = _mm256_setzero_ps();
  __m256 norm = _mm256_setzero_ps();
  __m256 left = _mm256_setzero_ps();
};

// Codes of one group, with their offsets.
struct GroupCodes {
  __m256i codes;
  __m256i fine;
};
inline GroupCodes encode_group(const float* weights, float scale, Squares& squares) {
  const __m256 inverse = V::set1(scale > 0.0F ? 1.0F / scale : 0.0F);
  const __m256 most = V::set1(kScreenMost);
  const __m256 step = V::set1(scale / kFineSteps);
  __m256 codes[4];
  __m256 fine[4];
  for (int i = 0; i < 4; ++i) {
    const __m256 w = _mm256_loadu_ps(weights + 8 * i);
    const __m256 steps = V::mul(w, inverse);
    codes[i] = V::min(V::max(V::round(steps), V::sub(V::zero(), most)), most);
    const __m256 value = V::mul(codes[i], V::set1(scale));
    const __m256 off = V::sub(w, value);
    const __m256 sixteenths = V::round(V::mul(V::sub(steps, codes[i]), V::set1(kFineSteps)));
    fine[i] = V::min(V::max(sixteenths, V::set1(-kFineOffset)), V::set1(kFineOffset - 1));
    const __m256 left = V::sub(off, V::mul(fine[i], step));
    squares.error = V::fma(off, off, squares.error);
    squares.norm = V::fma(value, value, squares.norm);
    squares.left = V::fma(left, left, squares.left);
  }
  return {bytes_of(codes, kScreenOffset), bytes_of(fine, kFineOffset)};
}

// Two groups' low bits, 64 columns apart.
inline void store_nibbles(__m256i low, __m256i high, std::byte* out) {
  const __m256i four = _mm256_set1_epi8(0x0F);
  const __m256i both = _mm256_or_si256(_mm256_and_si256(low, four), _mm256_slli_epi16(_mm256_and_si256(high, four), 4));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), both);
}

// The fifth bits of 32 columns, to bits 2 O and 2 O + 1 of their places in a block.
template <int O>
inline __m128i fifth_bits(__m256i codes) {
  const __m256i bits = _mm256_and_si256(_mm256_srli_epi16(codes, 4), _mm256_set1_epi8(1));
  return _mm_or_si128(_mm_slli_epi16(_mm256_castsi256_si128(bits), 2 * O),
                      _mm_slli_epi16(_mm256_extracti128_si256(bits, 1), 2 * O + 1));
}

inline void store_block(const GroupCodes (&groups)[kScreenGroups], std::byte* nibbles, std::byte* bits,
                        std::byte* fine) {
  for (int i = 0; i < 2; ++i) {
    store_nibbles(groups[i].codes, groups[i + 2].codes, nibbles + i * 32);
    store_nibbles(groups[i].fine, groups[i + 2].fine, fine + i * 32);
  }
  const __m128i low = _mm_or_si128(fifth_bits<0>(groups[0].codes), fifth_bits<1>(groups[1].codes));
  const __m128i high = _mm_or_si128(fifth_bits<2>(groups[2].codes), fifth_bits<3>(groups[3].codes));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(bits), _mm_or_si128(low, high));
}

}  // namespace

void screen_rows_avx2(const ScreenArgs& args) {
  screen_rows(args);
}

float screen_row_finely(const ScreenInput& x, const std::byte* row, const std::byte* fine) {
  constexpr float kShare = static_cast<float>(kFineOffset) / kScreenOffset;
  return screen_row(FineCodes{fine}, row + x.blocks * (kScreenNibbles + kScreenBits), x, kShare);
}

// A bound may be too wide, never too narrow: norms are raised by more than their own rounding, 2^-11 for up to 2^13
// terms a lane, and by what squares below the smallest normal number leave out.
ScreenNorms pack_screen_row(const ScreenRow& row) {
  constexpr float kRaise = 1.001F;
  constexpr float kLost = 0x1p-63F;
  float most = 0.0F;
  for (std::int64_t g = 0; g < row.blocks * kScreenGroups; ++g) {
    row.scratch[g] = group_magnitude(row.weights + g * kScreenGroup);
    most = row.scratch[g] > most ? row.scratch[g] : most;
  }
  const float unit = unit_of(most);
  std::byte* const bits = row.row + row.blocks * kScreenNibbles;
  std::byte* const scales = bits + row.blocks * kScreenBits;
  Squares squares;
  for (std::int64_t b = 0; b < row.blocks; ++b) {
    encode_scales(row.scratch + b * kScreenGroups, unit, scales + b * kScreenGroups);
  }
  for (std::int64_t b = 0; b < row.blocks; ++b) {
    GroupCodes groups[kScreenGroups];
    for (std::int64_t g = 0; g < kScreenGroups; ++g) {
      const std::int64_t group = b * kScreenGroups + g;
      groups[g] = encode_group(row.weights + group * kScreenGroup, row.scratch[group], squares);
    }
    store_block(groups, row.row + b * kScreenNibbles, bits + b * kScreenBits, row.fine + b * kScreenNibbles);
  }
  const float lost = kLost * __builtin_sqrtf(static_cast<float>(row.blocks * kScreenBlock));
  const auto raised = [&](__m256 sum) { return kRaise * __builtin_sqrtf(lane_sum(sum)) + lost; };
  return {.unit = unit, .error = raised(squares.error), .norm = raised(squares.norm), .left = raised(squares.left)};
}

}  // namespace moracle::cpu
