// AMX runs of integer activations: bytes times bytes, sums in 32-bit integers, the same bits as the tiles of
// avx512vnni.
//
// Lines of bytes are what VPDPBUSD wants too: four columns a lane. Codes of 8 bits are multiplied as they lie, nibbles
// are unpacked, two lines by three operations. A multiply takes 64 columns of 16 tokens by 16 rows in 16 cycles, eight
// times what vectors do. At the end of a group a sum costs 2 loads and a store a vector, four vectors a token, which is
// about the time of 128 columns' products.
//
// Activations of 16 bits come as two planes of signed bytes, the high halves and the low ones. Each meets the same
// weights, and the sums are put together in 32 bits, where nothing is rounded: as fast as bf16 tiles, whose lines have
// half as many columns, at half of the unpacking.
#include <immintrin.h>

#include <type_traits>

#include "kernels/cpu/amx/amx_runs.h"

namespace moracle::cpu {
namespace {

#include "kernels/cpu/avx512/vectors512.inc"

#include "kernels/cpu/panel_body.inc"

#include "kernels/cpu/integer_sums.inc"

#include "kernels/cpu/amx/tiles.inc"

#include "kernels/cpu/amx/tile_rows.inc"

#include "kernels/cpu/amx/tile_run.inc"

struct ByteLines {
  static constexpr std::int64_t kLineColumns = 4;
  static constexpr bool kIntegers = true;
  static constexpr bool kScaled = true;
  static bool joins(const PanelArgs&) { return false; }
};

struct SignedLines : ByteLines {
  using Sums = SignedSums;
  static void multiply_first() {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
  }
  static void multiply_second() {
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
};

struct UnsignedLines : ByteLines {
  using Sums = UnsignedSums;
  static void multiply_first() {
    _tile_dpbsud(0, 4, 6);
    _tile_dpbsud(1, 4, 7);
  }
  static void multiply_second() {
    _tile_dpbsud(2, 5, 6);
    _tile_dpbsud(3, 5, 7);
  }
};

struct Q8 : SignedLines {
  static constexpr std::int64_t kBytes = 256;
  static constexpr float kOffset = 128.0F;
  static constexpr float kUnit = 1.0F;
  static constexpr bool kStored = true;
};

// Bytes 0 .. 15, or -8 .. 7: columns 0, 4, 1, 5 of a step before 2, 6, 3, 7, as activations come.
template <class Lines>
struct Q4 : Lines {
  static constexpr std::int64_t kBytes = kPanelLine;
  static constexpr float kOffset = 8.0F;
  static constexpr float kUnit = 1.0F;
  static constexpr bool kStored = false;

  static __m512i codes(__m512i words, int k) {
    const __m512i nibbles = _mm512_and_si512(k == 0 ? words : _mm512_srli_epi16(words, 4), _mm512_set1_epi8(0x0F));
    if constexpr (Lines::Sums::kUnsigned) return nibbles;
    return _mm512_sub_epi8(nibbles, _mm512_set1_epi8(8));
  }

  void unpack(const PanelArgs& args, const std::byte* at, std::int64_t steps, const std::byte*, std::byte* out,
              bool asks) const {
    for (const std::byte* const end = at + steps * kBytes; at != end; at += kBytes, out += 2 * kPanelLine) {
      if (asks) prefetch(args, at, kBytes, kDistance);
      const __m512i words[2] = {_mm512_loadu_si512(at), _mm512_loadu_si512(at + kLine)};
#pragma GCC unroll 2
      for (int k = 0; k < 2; ++k)
#pragma GCC unroll 2
        for (int r = 0; r < 2; ++r) _mm512_store_si512(out + k * kPanelLine + r * kLine, codes(words[r], k));
    }
  }
};

}  // namespace

const AmxIntegerRuns kAmxIntegerRuns = {
    .q4 = run<Q4<UnsignedLines>>,
    .q8 = run<Q8>,
    .q4_planes = run_paired<Q4<SignedLines>, Pairing::planes>,
    .q8_planes = run_paired<Q8, Pairing::planes>,
};

}  // namespace moracle::cpu
