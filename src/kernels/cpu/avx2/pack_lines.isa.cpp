// Packing of panels, for every kernel that shares them: each needs AVX2 at least.
//
// A tile is 8 rows x 8 lines: eight registers that hold eight lines' words of one row are transposed in registers (24
// shuffles), so that a row is read a cache line or half of one at a time and a line is written in quarters. For 4-bit
// codes that is about 90 instructions for 512 codes, well below what the memory costs on either side.
#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/pack_lines.h"

namespace moracle::cpu {
namespace {

constexpr int kTileRows = 8;
constexpr int kTileLines = 8;
constexpr std::int64_t kLineBytes = kPanelRows * 4;

__m256i load(const std::byte* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

// What makes eight lines' words of one row out of kBytes bytes of it.
struct Nibbles {  // even columns in the low half of the word, odd ones in the high half
  static constexpr std::int64_t kBytes = 64;
  static __m256i step_words(const std::byte* at) {
    const __m256i order = _mm256_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15,  //
                                           0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    return _mm256_maddubs_epi16(_mm256_shuffle_epi8(load(at), order), _mm256_set1_epi16(0x1001));
  }
  static __m256i words(const std::byte* at) {
    const __m256i bytes = _mm256_packus_epi16(step_words(at), step_words(at + 32));
    return _mm256_permute4x64_epi64(bytes, 0xD8);  // the pack works on halves
  }
};
struct SignedBytes {  // offset-binary to two's complement
  static constexpr std::int64_t kBytes = 32;
  static __m256i words(const std::byte* at) { return _mm256_xor_si256(load(at), _mm256_set1_epi8(-128)); }
};
struct FloatBytes {  // bytes 1 and 2 of a word change places
  static constexpr std::int64_t kBytes = 32;
  static __m256i words(const std::byte* at) {
    const __m256i order = _mm256_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15,  //
                                           0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
    return _mm256_shuffle_epi8(load(at), order);
  }
};
struct Bf16Pairs {
  static constexpr std::int64_t kBytes = 64;
  static __m256i round(const std::byte* at) {  // to nearest even
    const __m256i bits = load(at);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
    return _mm256_srli_epi32(sum, 16);
  }
  static __m256i words(const std::byte* at) {
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(round(at), round(at + 32)), 0xD8);
  }
};
struct F16Pairs {
  static constexpr std::int64_t kBytes = 64;
  static __m128i half(const std::byte* at) {
    return _mm256_cvtps_ph(_mm256_loadu_ps(reinterpret_cast<const float*>(at)), _MM_FROUND_TO_NEAREST_INT);
  }
  static __m256i words(const std::byte* at) { return _mm256_set_m128i(half(at + 32), half(at)); }
};
struct F32Words {
  static constexpr std::int64_t kBytes = 32;
  static __m256i words(const std::byte* at) { return load(at); }
};

// x[i] lane j becomes x[j] lane i.
inline void transpose(__m256i (&x)[kTileRows]) {
  __m256i a[8];
  __m256i b[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_epi32(x[i], x[i + 1]);
    a[i + 1] = _mm256_unpackhi_epi32(x[i], x[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    b[i] = _mm256_unpacklo_epi64(a[i], a[i + 2]);
    b[i + 1] = _mm256_unpackhi_epi64(a[i], a[i + 2]);
    b[i + 2] = _mm256_unpacklo_epi64(a[i + 1], a[i + 3]);
    b[i + 3] = _mm256_unpackhi_epi64(a[i + 1], a[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    x[i] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x20);
    x[i + 4] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x31);
  }
}

// Eight lines of all rows; of the last ones only `lines` are there.
template <class Source>
void pack_tile(const std::byte* rows, std::int64_t stride, std::int64_t count, std::byte* const (&line)[kTileLines],
               std::int64_t lines) {
  for (std::int64_t first = 0; first < kPanelRows; first += kTileRows) {
    __m256i x[kTileRows];
#pragma GCC unroll 8
    for (std::int64_t r = 0; r < kTileRows; ++r) {
      x[r] = first + r < count ? Source::words(rows + (first + r) * stride) : _mm256_setzero_si256();
    }
    transpose(x);
#pragma GCC unroll 8
    for (std::int64_t i = 0; i < kTileLines; ++i) {
      if (i < lines) _mm256_storeu_si256(reinterpret_cast<__m256i*>(line[i] + first * 4), x[i]);
    }
  }
}

template <class Source>
void pack(const LineArgs& args, std::int64_t column_bytes) {
  const std::int64_t bytes = args.columns * column_bytes;
  std::byte* out = args.out;
  std::int64_t left = args.group_lines;
  for (std::int64_t done = 0, at = 0; done < args.lines; done += kTileLines, at += Source::kBytes) {
    const std::int64_t lines = args.lines - done < kTileLines ? args.lines - done : kTileLines;
    std::byte* line[kTileLines];
    for (std::int64_t i = 0; i < kTileLines; ++i) {
      if (left == 0) {
        left = args.group_lines;
        out += args.group_tail;
      }
      --left;
      line[i] = out;
      out += kLineBytes;
    }
    if (at + Source::kBytes <= bytes) {
      pack_tile<Source>(args.rows + at, args.stride, args.count, line, lines);
      continue;
    }
    alignas(32) std::byte tail[kPanelRows * Source::kBytes] = {};
    for (std::int64_t r = 0; r < args.count && at < bytes; ++r) {
      std::memcpy(tail + r * Source::kBytes, args.rows + r * args.stride + at, static_cast<std::size_t>(bytes - at));
    }
    pack_tile<Source>(tail, Source::kBytes, args.count, line, lines);
  }
}

}  // namespace

void pack_lines(const LineArgs& args) {
  switch (args.code) {
    case PanelCode::q4:
    case PanelCode::e2m1:
      return pack<Nibbles>(args, 1);
    case PanelCode::q8:
      return pack<SignedBytes>(args, 1);
    case PanelCode::e4m3:
      return pack<FloatBytes>(args, 1);
    case PanelCode::bf16:
      return pack<Bf16Pairs>(args, 4);
    case PanelCode::f16:
      return pack<F16Pairs>(args, 4);
    case PanelCode::f32:
      return pack<F32Words>(args, 4);
  }
}

}  // namespace moracle::cpu
