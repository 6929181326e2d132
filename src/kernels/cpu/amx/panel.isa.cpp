// AMX runs of bf16 activations.
//
// bf16 weights are multiplied as they lie; 4-bit and FP8 codes are unpacked to pairs of bf16, 32 columns of 16 rows by
// 16 tokens a multiply of 16 cycles. Unpacking 128 columns of a panel takes about as long as multiplying them by 32
// tokens.
//
// Scales. Where the scaled weight is exact in bf16 (a power of two times any code; E4M3 times E2M1, 6 significant bits)
// it is unpacked with its scale, and groups join. Elsewhere each group's sums are multiplied by its scale.
#include <immintrin.h>

#include <type_traits>

#include "kernels/cpu/amx/amx_runs.h"

namespace moracle::cpu {
namespace {

#include "kernels/cpu/avx512/vectors512.inc"

#include "kernels/cpu/panel_body.inc"

#include "kernels/cpu/avx512bf16/decoders_bf16.inc"

#include "kernels/cpu/amx/tiles.inc"

#include "kernels/cpu/amx/tile_rows.inc"

#include "kernels/cpu/amx/tile_run.inc"

struct Bf16Lines {
  using Sums = FloatSums;
  static constexpr std::int64_t kLineColumns = 2;
  static constexpr bool kIntegers = false;
  static void multiply_first() {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
  }
  static void multiply_second() {
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
};

struct Dense : Bf16Lines {
  static constexpr std::int64_t kBytes = 512;
  static constexpr float kUnit = 1.0F;
  static constexpr float kOffset = 0.0F;
  static constexpr bool kStored = true;
  static constexpr bool kScaled = false;
  static bool joins(const PanelArgs&) { return false; }
};

// Multiplies bf16 pairs by f32 scales of their rows; the caller knows that the products are bf16 numbers.
inline __m512i scaled_pairs(__m512i pairs, V::Reg scale) {
  const __m512i high_half = _mm512_set1_epi32(static_cast<int>(0xFFFF0000U));
  const __m512 even = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)), scale);
  const __m512 odd = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_and_si512(pairs, high_half)), scale);
  return _mm512_ternarylogic_epi32(high_half, _mm512_castps_si512(odd),
                                   _mm512_srli_epi32(_mm512_castps_si512(even), 16), 0xEA);
}

// E2M1 times 2^100, from whose exponents a scale is subtracted with saturation, so that zeros, which have no sign here,
// stay zeros: one operation where adding needs a test.
constexpr CodeTable kHighE2m1 = {{0x0000, 0x7100, 0x7180, 0x71C0, 0x7200, 0x7240, 0x7280, 0x72C0,
                                  0x0000, 0xF100, 0xF180, 0xF1C0, 0xF200, 0xF240, 0xF280, 0xF2C0,
                                  0x0000, 0x7100, 0x7180, 0x71C0, 0x7200, 0x7240, 0x7280, 0x72C0,
                                  0x0000, 0xF100, 0xF180, 0xF1C0, 0xF200, 0xF240, 0xF280, 0xF2C0}};
constexpr int kHigh = 100;

// The numbers of decoder D, and how many powers of two they are multiplied by.
template <class D>
struct Raised {
  using Decoder = D;
  static constexpr int kBy = 0;
};
template <>
struct Raised<E2m1> {
  using Decoder = Nibbles<kHighE2m1>;
  static constexpr int kBy = kHigh;
};

// Powers of two as they join bf16 numbers.
template <class D>
class Exponents {
 public:
  static constexpr int kRaised = Raised<D>::kBy;

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

// Whether weights times their scales are bf16 numbers.
template <class D>
constexpr bool kExactUnderE4m3 = false;
template <>
constexpr bool kExactUnderE4m3<E2m1> = true;

// The codes of decoder D as bf16.
template <class D>
struct Codes : Bf16Lines {
  static constexpr std::int64_t kBytes = D::kBytes;
  static constexpr float kUnit = D::kUnit;
  static constexpr float kOffset = D::kOffset;
  static constexpr bool kStored = false;
  static constexpr bool kScaled = true;
  static bool joins(const PanelArgs& args) {
    const bool exact = args.scale == PanelScale::e8m0 || (args.scale == PanelScale::e4m3 && kExactUnderE4m3<D>);
    return exact && !args.scaled && !args.zeros;
  }

  void unpack(const PanelArgs& args, const std::byte* at, std::int64_t steps, const std::byte* tail, std::byte* out,
              bool asks) const {
    if (!joins(args)) {
      unpack_with(decoder_, args, at, steps, out, asks, [](__m512i pairs, int) { return pairs; });
      return;
    }
    if (args.scale == PanelScale::e8m0) {
      const Exponents<D> exponents(tail);
      if (exponents.fit()) {
        unpack_with(raised_, args, at, steps, out, asks,
                    [&](__m512i pairs, int r) { return exponents.join(pairs, r); });
        return;
      }
    }
    const V::Reg factors[] = {load_scale(args.scale, tail, 0), load_scale(args.scale, tail, 1)};
    unpack_with(decoder_, args, at, steps, out, asks,
                [&](__m512i pairs, int r) { return scaled_pairs(pairs, factors[r]); });
  }

 private:
  template <class Decoder, class Scale>
  static void unpack_with(const Decoder& decoder, const PanelArgs& args, const std::byte* at, std::int64_t steps,
                          std::byte* out, bool asks, const Scale& scale) {
    for (std::int64_t s = 0; s < steps; ++s, at += D::kBytes, out += kSlots<Bf16Form> * kPanelLine) {
      if (asks) prefetch(args, at, D::kBytes, kDistance);
      decoding(decoder, at, [&](const auto& chosen) __attribute__((always_inline)) {
#pragma GCC unroll 2
        for (int r = 0; r < V::kRegs; ++r) {  // all columns of a row before any is stored: a store could change them
          __m512i w[kSlots<Bf16Form>];
#pragma GCC unroll 4
          for (int k = 0; k < kSlots<Bf16Form>; ++k) {
            w[k] = scale(reinterpret_cast<__m512i>(chosen.weight(at, k, r)), r);
          }
#pragma GCC unroll 4
          for (int k = 0; k < kSlots<Bf16Form>; ++k) _mm512_store_si512(out + k * kPanelLine + r * kLine, w[k]);
        }
      });
    }
  }

  const D decoder_{};
  const typename Raised<D>::Decoder raised_{};
};

}  // namespace

const AmxRuns kAmxRuns = {
    .q4 = run<Codes<Q4>>,
    .q8 = run<Codes<Q8>>,
    .e2m1 = run<Codes<E2m1>>,
    .e4m3 = run<Codes<E4m3>>,
    .bf16 = run<Dense>,
};

}  // namespace moracle::cpu
