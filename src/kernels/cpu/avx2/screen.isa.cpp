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

// Codes of 32 columns, with their offsets.
struct EncodedColumns {
  __m256i codes;
  __m256i fine;
};
inline EncodedColumns encode_columns(const float* weights, float scale, Squares& squares) {
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

// The low two bits of 32 columns, to bits 2 I to 2 I + 3 of their places in a block.
template <int I>
inline __m128i low_pairs(__m256i codes) {
  const __m256i pairs = _mm256_and_si256(codes, _mm256_set1_epi8(3));
  return _mm_or_si128(_mm_slli_epi16(_mm256_castsi256_si128(pairs), 2 * I),
                      _mm_slli_epi16(_mm256_extracti128_si256(pairs, 1), 2 * I + 2));
}

// The block's columns, 32 each.
inline void store_block(const EncodedColumns (&columns)[4], std::byte* bytes, std::byte* pairs, std::byte* fine) {
  for (int i = 0; i < 2; ++i) {
    const EncodedColumns& low = columns[i];
    const EncodedColumns& high = columns[i + 2];
    const __m256i three = _mm256_and_si256(_mm256_slli_epi16(high.codes, 3), _mm256_set1_epi8(static_cast<char>(0xE0)));
    store_words(bytes + i * 32, _mm256_or_si256(low.codes, three));
    store_words(fine + i * 32, _mm256_or_si256(low.fine, _mm256_slli_epi16(high.fine, 4)));
  }
  const __m128i all = _mm_or_si128(low_pairs<0>(columns[2].codes), low_pairs<2>(columns[3].codes));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(pairs), all);
}

}  // namespace

void screen_rows_avx2(const ScreenArgs& args) {
  screen_rows(args);
}

float screen_row_finely(const ScreenInput& x, const std::byte* row, const std::byte* fine) {
  constexpr float kShare = static_cast<float>(kFineOffset) / kScreenOffset;
  return screen_row(FineCodes{fine}, row + x.blocks * (kScreenBytes + kScreenPairs), x, kShare, nullptr);
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
  const float per_scale = unit > 0.0F ? 1.0F / (kScreenMost * unit) : 0.0F;
  std::byte* const pairs = row.row + row.blocks * kScreenBytes;
  std::byte* const scales = pairs + row.blocks * kScreenPairs;
  Squares squares;
  // Of all groups first: the way from a largest weight to its codes is long.
  for (std::int64_t g = 0; g < row.blocks * kScreenGroups; ++g) {
    // Up, so that the largest weight has a code; rounding may still ask for 256.
    const float scale = __builtin_fminf(__builtin_ceilf(row.scratch[g] * per_scale), 255.0F);
    scales[g] = static_cast<std::byte>(static_cast<int>(scale));
    row.scratch[g] = scale * unit;
  }
  for (std::int64_t b = 0; b < row.blocks; ++b) {
    EncodedColumns columns[4];
    for (std::int64_t i = 0; i < 4; ++i) {
      const std::int64_t first = b * kScreenBlock + i * 32;
      columns[i] = encode_columns(row.weights + first, row.scratch[first / kScreenGroup], squares);
    }
    store_block(columns, row.row + b * kScreenBytes, pairs + b * kScreenPairs, row.fine + b * kFineBytes);
  }
  const float lost = kLost * __builtin_sqrtf(static_cast<float>(row.blocks * kScreenBlock));
  const auto raised = [&](__m256 sum) { return kRaise * __builtin_sqrtf(lane_sum(sum)) + lost; };
  return {.unit = unit, .error = raised(squares.error), .norm = raised(squares.norm), .left = raised(squares.left)};
}

}  // namespace moracle::cpu
