// Codes as AMX tiles take them.
// A multiply takes 16 rows by 16 tokens by 32 columns of bf16, or 64 of bytes, in 16 cycles. Unpacking codes to bf16
// costs as much as multiplying them by 32 tokens, the end of a group of integers as much as 128 columns' products.
//
// Scales: groups join in one sum where the scaled weight is exact in bf16 (a power of two times any code; E4M3 times
// E2M1, 6 significant bits). Elsewhere each group's sums are multiplied by its scale.
#pragma once

#include "kernels/cpu/gemm/amx-inl.h"
#include "kernels/cpu/weights/codes_avx512_bf16-inl.h"
#include "kernels/cpu/weights/codes_vnni-inl.h"

namespace moracle::cpu::avx512 {

template <class Simd>
struct ByteLines {
  using V = Simd;
  static constexpr ActDtype kAct = ActDtype::i8;
  static constexpr std::int64_t kLineColumns = 4;
  static constexpr bool kIntegers = true;
  static constexpr bool kScaled = true;
  static bool joins(const TileArgs&) { return false; }
};

template <class V>
struct SignedLines : ByteLines<V> {
  using Sums = SignedSums<V>;
  static void gemm_first() {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
  }
  static void gemm_second() {
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
};

template <class V>
struct UnsignedLines : ByteLines<V> {
  using Sums = UnsignedSums<V>;
  static void gemm_first() {
    _tile_dpbsud(0, 4, 6);
    _tile_dpbsud(1, 4, 7);
  }
  static void gemm_second() {
    _tile_dpbsud(2, 5, 6);
    _tile_dpbsud(3, 5, 7);
  }
};

template <class V>
struct AmxInt8 : SignedLines<V>, ScaledCode<WeightCode::int8, 128> {
  static constexpr bool kStored = true;
};

// Bytes 0 .. 15, or -8 .. 7: columns 0, 4, 1, 5 of a step before 2, 6, 3, 7, as activations come.
template <class Lines>
struct AmxInt4 : Lines, ScaledCode<WeightCode::int4, 8> {
  using V = typename Lines::V;
  static constexpr bool kStored = false;

  static __m512i codes(__m512i words, int k) {
    const __m512i nibbles = _mm512_and_si512(k == 0 ? words : _mm512_srli_epi16(words, 4), _mm512_set1_epi8(0x0F));
    if constexpr (Lines::Sums::kUnsigned) return nibbles;
    return _mm512_sub_epi8(nibbles, _mm512_set1_epi8(8));
  }

  void unpack(const TileArgs& args, const std::byte* at, std::int64_t steps, const std::byte*, std::byte* out,
              bool prefetches) const {
    for (const std::byte* const end = at + steps * kBytes; at != end; at += kBytes, out += 2 * kPanelLine) {
      if (prefetches) Prefetch<V>::panel(args, at, kBytes, kPrefetchBytes);
      const __m512i words[2] = {_mm512_loadu_si512(at), _mm512_loadu_si512(at + kLine)};
#pragma GCC unroll 2
      for (int k = 0; k < 2; ++k)
#pragma GCC unroll 2
        for (int r = 0; r < 2; ++r) _mm512_store_si512(out + k * kPanelLine + r * kLine, codes(words[r], k));
    }
  }
};

// The same codes under split int16 activations.
template <class D>
struct AmxSplit : D {
  static constexpr ActDtype kAct = ActDtype::split_i16;
};

template <class Simd>
struct Bf16Lines {
  using V = Simd;
  using Sums = FloatSums<V>;
  static constexpr ActDtype kAct = ActDtype::bf16;
  static constexpr std::int64_t kLineColumns = 2;
  static constexpr bool kIntegers = false;
  static void gemm_first() {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
  }
  static void gemm_second() {
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
};

template <class V>
struct AmxBf16 : Bf16Lines<V>, ScaledCode<WeightCode::bf16, 0> {
  static constexpr bool kStored = true;
  static constexpr bool kScaled = false;
  static bool joins(const TileArgs&) { return false; }
};

// Multiplies bf16 pairs by f32 scales of their rows; the caller knows that the products are bf16 numbers.
template <class V>
inline __m512i scaled_pairs(__m512i pairs, typename V::Reg scale) {
  const auto words = reinterpret_cast<typename V::Words>(pairs);
  return bf16_pairs<V>(column_of<V>(words, 0) * scale, column_of<V>(words, 1) * scale);
}

// E2M1 times 2^100, from whose exponents a scale is subtracted with saturation, so that zeros, which have no sign here,
// stay zeros: one operation where adding needs a test.
inline constexpr WordTable kHighE2m1{{0x0000, 0x7100, 0x7180, 0x71C0, 0x7200, 0x7240, 0x7280, 0x72C0,  //
                                      0x0000, 0xF100, 0xF180, 0xF1C0, 0xF200, 0xF240, 0xF280, 0xF2C0}};

// The decoder whose numbers powers of two join, of decoder D's codes, and by how many powers it raises them.
template <class D>
constexpr int kRaisedBy = D::kCode == WeightCode::e2m1 ? 100 : 0;
template <class D>
using Raised =
    std::conditional_t<D::kCode == WeightCode::e2m1, Bf16Nibbles<typename D::Form::V, WeightCode::e2m1, kHighE2m1>, D>;

// Powers of two as they join bf16 numbers.
template <class D>
class Exponents {
  using V = typename D::Form::V;

 public:
  static constexpr int kRaised = kRaisedBy<D>;

  explicit Exponents(const std::byte* scales) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales));
    // Within these the exponents of all codes' products are those of normal bf16 numbers (E4M3 reaches 2^-9 and 2^8).
    const __m256i low = _mm256_set1_epi8(16);
    const __m256i span = _mm256_set1_epi8(static_cast<char>((kRaised > 0 ? 127 + kRaised : 240) - 16));
    fit_ = _mm256_cmple_epu8_mask(_mm256_sub_epi8(bytes, low), span) == 0xFFFFFFFFU;
    for (int r = 0; r < 2; ++r) {
      const __m512i code = V::bytes(scales + r * V::kLanes);
      const __m512i bias = _mm512_set1_epi32(127 + kRaised);
      const __m512i exponent = kRaised > 0 ? _mm512_sub_epi32(bias, code) : _mm512_sub_epi32(code, bias);
      const __m512i word = _mm512_and_si512(_mm512_slli_epi32(exponent, 7), _mm512_set1_epi32(0xFFFF));
      words_[r] = _mm512_or_si512(word, _mm512_slli_epi32(word, 16));
    }
  }
  [[nodiscard]] bool fit() const { return fit_; }
  [[nodiscard]] __m512i join(__m512i pairs, int r) const {
    if constexpr (kRaised > 0) return _mm512_subs_epu16(pairs, words_[r]);
    const __mmask32 some = _mm512_test_epi16_mask(pairs, _mm512_set1_epi16(0x7FFF));
    return _mm512_mask_add_epi16(pairs, some, pairs, words_[r]);
  }

 private:
  bool fit_;
  __m512i words_[2];
};

// The codes of decoder D as bf16.
template <class D>
struct AmxCodes : Bf16Lines<typename D::Form::V>, ScaledCode<D::kCode, static_cast<int>(D::kOffset)> {
  using V = typename D::Form::V;
  using Reg = typename V::Reg;
  static_assert(D::kUnit == 1.0F);
  static constexpr bool kStored = false;
  static constexpr bool kScaled = true;
  static bool joins(const TileArgs& args) {
    const bool exact =  // weights times their scales are bf16 numbers
        args.shape.scale == ScaleCode::e8m0 || (args.shape.scale == ScaleCode::e4m3 && D::kCode == WeightCode::e2m1);
    return exact && args.shape.scaling != ActScaling::per_group && !args.shape.zeros;
  }

  void unpack(const TileArgs& args, const std::byte* at, std::int64_t steps, const std::byte* tail, std::byte* out,
              bool prefetches) const {
    if (!joins(args)) {
      unpack_with(decoder_, args, at, steps, out, prefetches, [](__m512i pairs, int) { return pairs; });
      return;
    }
    if (args.shape.scale == ScaleCode::e8m0) {
      const Exponents<D> exponents(tail);
      if (exponents.fit()) {
        unpack_with(raised_, args, at, steps, out, prefetches,
                    [&](__m512i pairs, int r) { return exponents.join(pairs, r); });
        return;
      }
    }
    const Reg factors[] = {load_scale<V>(args.shape.scale, tail, 0), load_scale<V>(args.shape.scale, tail, 1)};
    unpack_with(decoder_, args, at, steps, out, prefetches,
                [&](__m512i pairs, int r) { return scaled_pairs<V>(pairs, factors[r]); });
  }

 private:
  template <class Decoder, class Scale>
  static void unpack_with(const Decoder& decoder, const TileArgs& args, const std::byte* at, std::int64_t steps,
                          std::byte* out, bool prefetches, const Scale& scale) {
    for (std::int64_t s = 0; s < steps; ++s, at += D::kBytes, out += kSlots<Bf16Form<V>> * kPanelLine) {
      if (prefetches) Prefetch<V>::panel(args, at, D::kBytes, kPrefetchBytes);
      decoding(decoder, at, [&](const auto& chosen) __attribute__((always_inline)) {
#pragma GCC unroll 2
        for (int r = 0; r < V::kRegs; ++r) {  // all columns of a row before any is stored: a store could change them
          __m512i w[kSlots<Bf16Form<V>>];
#pragma GCC unroll 4
          for (int k = 0; k < kSlots<Bf16Form<V>>; ++k) {
            w[k] = scale(reinterpret_cast<__m512i>(chosen.weight(at, k, r)), r);
          }
#pragma GCC unroll 4
          for (int k = 0; k < kSlots<Bf16Form<V>>; ++k) _mm512_store_si512(out + k * kPanelLine + r * kLine, w[k]);
        }
      });
    }
  }

  const D decoder_{};
  const Raised<D> raised_{};
};

}  // namespace moracle::cpu::avx512
