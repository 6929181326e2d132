// Packing of panels, for every kernel that shares them: each needs AVX2 at least.
//
// A tile is 8 rows x 8 lines: eight registers that hold eight lines' words of one row are transposed in registers (24
// shuffles), so that a row is read a cache line or half of one at a time and a line is written in quarters. For 4-bit
// codes that is about 90 instructions for 512 codes, well below what the memory costs on either side.
//
// Compiled on x86_64 with -mavx2 -mfma -mf16c
#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/weights/pack_lines.h"

namespace moracle::cpu {
namespace {

constexpr int kTileRows = 8;
constexpr int kTileLines = 8;
constexpr std::int64_t kLineBytes = kPanelRows * 4;

__m256i load(const std::byte* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

// What makes eight lines' words of one row out of kBytes bytes of it: of canonical codes and values, or of stored words
// (kBytes = 32). `padding` are bytes that mean code 0.
struct Source {
  std::uint8_t padding = 0;
  [[nodiscard]] bool usual() const { return true; }  // whether all were numbers
};
struct Nibbles : Source {  // even columns in the low half of the word, odd ones in the high half
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
struct NibbleWords : Source {  // the same, from words of eight nibbles in order
  static constexpr std::int64_t kBytes = 32;
  explicit NibbleWords(std::uint8_t flip) : Source{flip} {}
  [[nodiscard]] __m256i words(const std::byte* at) const {
    const __m256i order = _mm256_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15,  //
                                           0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
    const __m256i x = _mm256_xor_si256(load(at), _mm256_set1_epi8(static_cast<char>(padding)));
    const __m256i inner =  // nibbles 1 and 2 of each half word change places
        _mm256_and_si256(_mm256_xor_si256(x, _mm256_srli_epi16(x, 4)), _mm256_set1_epi16(0x00F0));
    const __m256i pairs = _mm256_xor_si256(x, _mm256_xor_si256(inner, _mm256_slli_epi16(inner, 4)));
    return _mm256_shuffle_epi8(pairs, order);
  }
};
struct SignedBytes : Source {  // to two's complement
  static constexpr std::int64_t kBytes = 32;
  explicit SignedBytes(std::uint8_t flip) : Source{flip} {}
  [[nodiscard]] __m256i words(const std::byte* at) const {
    return _mm256_xor_si256(load(at), _mm256_set1_epi8(static_cast<char>(padding ^ 0x80U)));
  }
};
struct FloatBytes : Source {  // bytes 1 and 2 of a word change places
  static constexpr std::int64_t kBytes = 32;
  __m256i nan = _mm256_setzero_si256();
  __m256i words(const std::byte* at) {
    const __m256i order = _mm256_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15,  //
                                           0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
    const __m256i magnitude = _mm256_set1_epi8(0x7F);
    const __m256i bytes = load(at);
    nan = _mm256_or_si256(nan, _mm256_cmpeq_epi8(_mm256_and_si256(bytes, magnitude), magnitude));
    return _mm256_shuffle_epi8(bytes, order);
  }
  [[nodiscard]] bool usual() const { return _mm256_testz_si256(nan, nan) != 0; }
};
struct Bf16Pairs : Source {
  static constexpr std::int64_t kBytes = 64;
  static __m256i round(__m256i bits) {  // to nearest even
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
    return _mm256_srli_epi32(sum, 16);
  }
  static __m256i words(const std::byte* at) {
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(round(load(at)), round(load(at + 32))), 0xD8);
  }
};
struct F16Pairs : Source {
  static constexpr std::int64_t kBytes = 64;
  static __m128i half(const std::byte* at) {
    return _mm256_cvtps_ph(_mm256_loadu_ps(reinterpret_cast<const float*>(at)), _MM_FROUND_TO_NEAREST_INT);
  }
  static __m256i words(const std::byte* at) { return _mm256_set_m128i(half(at + 32), half(at)); }
};
struct HalfWords : Source {  // two 16-bit numbers, kept as they are
  static constexpr std::int64_t kBytes = 32;
  explicit HalfWords(std::int16_t exponent_bits) : exponent(_mm256_set1_epi16(exponent_bits)) {}
  __m256i exponent;
  __m256i infinite = _mm256_setzero_si256();  // or NaN
  __m256i words(const std::byte* at) {
    const __m256i bits = load(at);
    infinite = _mm256_or_si256(infinite, _mm256_cmpeq_epi16(_mm256_and_si256(bits, exponent), exponent));
    return bits;
  }
  [[nodiscard]] bool usual() const { return _mm256_testz_si256(infinite, infinite) != 0; }
};
struct F32Words : Source {
  static constexpr std::int64_t kBytes = 32;
  __m256i infinite = _mm256_setzero_si256();
  __m256i words(const std::byte* at) {
    const __m256i exponent = _mm256_set1_epi32(0x7F800000);
    const __m256i bits = load(at);
    infinite = _mm256_or_si256(infinite, _mm256_cmpeq_epi32(_mm256_and_si256(bits, exponent), exponent));
    return bits;
  }
  [[nodiscard]] bool usual() const { return _mm256_testz_si256(infinite, infinite) != 0; }
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
template <class Words>
void pack_tile(Words& source, const std::byte* rows, std::int64_t stride, std::int64_t count,
               std::byte* const (&line)[kTileLines], std::int64_t lines) {
  for (std::int64_t first = 0; first < kPanelRows; first += kTileRows) {
    __m256i x[kTileRows];
#pragma GCC unroll 8
    for (std::int64_t r = 0; r < kTileRows; ++r) {
      x[r] = first + r < count ? source.words(rows + (first + r) * stride) : _mm256_setzero_si256();
    }
    transpose(x);
#pragma GCC unroll 8
    for (std::int64_t i = 0; i < kTileLines; ++i) {
      if (i < lines) _mm256_storeu_si256(reinterpret_cast<__m256i*>(line[i] + first * 4), x[i]);
    }
  }
}

// Where the lines of a panel lie, one after the other.
class LinePlaces {
 public:
  LinePlaces(std::byte* out, std::int64_t left, std::int64_t group_lines, std::int64_t group_tail)
      : out_(out), left_(left), group_lines_(group_lines), group_tail_(group_tail) {}
  std::byte* next() {
    if (left_ == 0) {
      left_ = group_lines_;
      out_ += group_tail_;
    }
    --left_;
    std::byte* const line = out_;
    out_ += kLineBytes;
    return line;
  }

 private:
  std::byte* out_;
  std::int64_t left_;
  std::int64_t group_lines_;
  std::int64_t group_tail_;
};

template <class Words>
bool pack(const LineArgs& args, std::int64_t bytes, Words source) {
  LinePlaces places(args.out, args.group_lines, args.group_lines, args.group_tail);
  for (std::int64_t done = 0, at = 0; done < args.lines; done += kTileLines, at += Words::kBytes) {
    const std::int64_t lines = args.lines - done < kTileLines ? args.lines - done : kTileLines;
    std::byte* line[kTileLines];
    for (std::int64_t i = 0; i < lines; ++i) line[i] = places.next();
    if (at + Words::kBytes <= bytes) {
      pack_tile(source, args.rows + at, args.stride, args.count, line, lines);
      continue;
    }
    alignas(32) std::byte tail[kPanelRows * Words::kBytes];
    std::memset(tail, source.padding, sizeof tail);
    for (std::int64_t r = 0; r < args.count && at < bytes; ++r) {
      std::memcpy(tail + r * Words::kBytes, args.rows + r * args.stride + at, static_cast<std::size_t>(bytes - at));
    }
    pack_tile(source, tail, Words::kBytes, args.count, line, lines);
  }
  return source.usual();
}

// Words of one line, of `rows` rows.
template <class Words>
void copy_line(Words& source, const std::byte* words, std::int64_t rows, std::byte* line) {
  const auto copy = [&](const std::byte* from, std::byte* to) {
#pragma GCC unroll 4
    for (std::int64_t i = 0; i < kLineBytes; i += 32)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), source.words(from + i));
  };
  if (rows >= kPanelRows) return copy(words, line);
  const auto bytes = static_cast<std::size_t>(rows * 4);
  alignas(32) std::byte some[kLineBytes] = {};
  std::memcpy(some, words, bytes);
  copy(some, some);
  std::memset(line, 0, kLineBytes);
  std::memcpy(line, some, bytes);
}

// A block of lines of all panels, then the next: as many runs are read as it has lines, each from its begin to its end.
template <class Words>
bool pack_words(const WordLineArgs& args, Words source) {
  constexpr std::int64_t kBlockLines = 16;
  alignas(32) std::byte padding[kLineBytes];
  std::memset(padding, source.padding, sizeof padding);
  LinePlaces places(args.out, args.group_left, args.group_lines, args.group_tail);
  for (std::int64_t first = 0; first < args.lines; first += kBlockLines) {
    const std::int64_t lines = args.lines - first < kBlockLines ? args.lines - first : kBlockLines;
    std::byte* line[kBlockLines];
    for (std::int64_t i = 0; i < lines; ++i) line[i] = places.next();
    std::int64_t panel = 0;
    for (std::int64_t row = 0; row < args.rows; row += kPanelRows, panel += args.panel_stride) {
      for (std::int64_t i = 0; i < lines; ++i) {
        const bool there = first + i < args.columns;
        copy_line(source, there ? args.words + (first + i) * args.stride + row * 4 : padding, args.rows - row,
                  line[i] + panel);
      }
    }
  }
  return source.usual();
}

// Scales of one form: their bytes, and those registers' lanes in which one is no usual number.
template <ScaleCode kForm>
struct ScaleBits;
template <>
struct ScaleBits<ScaleCode::e8m0> {
  static constexpr std::int64_t kBytes = 1;
  static __m256i unusual(__m256i x) {
    return _mm256_or_si256(_mm256_cmpeq_epi8(x, _mm256_setzero_si256()), _mm256_cmpeq_epi8(x, _mm256_set1_epi8(-1)));
  }
};
template <>
struct ScaleBits<ScaleCode::e4m3> {
  static constexpr std::int64_t kBytes = 1;
  static __m256i unusual(__m256i x) {
    const __m256i most = _mm256_set1_epi8(0x7F);
    const __m256i magnitude = _mm256_and_si256(x, most);
    return _mm256_or_si256(_mm256_cmpeq_epi8(magnitude, _mm256_setzero_si256()), _mm256_cmpeq_epi8(magnitude, most));
  }
};
template <std::int16_t kInfinity>
struct HalfScaleBits {
  static constexpr std::int64_t kBytes = 2;
  static __m256i unusual(__m256i x) {
    const __m256i magnitude = _mm256_and_si256(x, _mm256_set1_epi16(0x7FFF));
    return _mm256_or_si256(_mm256_cmpeq_epi16(magnitude, _mm256_setzero_si256()),
                           _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(kInfinity - 1)));
  }
};
template <>
struct ScaleBits<ScaleCode::f16> : HalfScaleBits<0x7C00> {};
template <>
struct ScaleBits<ScaleCode::bf16> : HalfScaleBits<0x7F80> {};
template <>
struct ScaleBits<ScaleCode::f32> {
  static constexpr std::int64_t kBytes = 4;
  static __m256i unusual(__m256i x) {
    const __m256i magnitude = _mm256_and_si256(x, _mm256_set1_epi32(0x7FFFFFFF));
    return _mm256_or_si256(_mm256_cmpeq_epi32(magnitude, _mm256_setzero_si256()),
                           _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7F7FFFFF)));
  }
};

// Part kPart of every word of 32 rows, which are eight in a register, in their order.
template <std::int64_t kBytes, int kPart>
void split_words(const __m256i (&words)[4], __m256i (&column)[kBytes]) {
  if constexpr (kBytes == 4) {
    for (int i = 0; i < 4; ++i) column[i] = words[i];
  } else {
    constexpr int kBits = static_cast<int>(kBytes) * 8;
    __m256i part[4];
    for (int i = 0; i < 4; ++i)
      part[i] = _mm256_and_si256(_mm256_srli_epi32(words[i], kPart * kBits), _mm256_set1_epi32((1 << kBits) - 1));
    const __m256i low = _mm256_packus_epi32(part[0], part[1]);  // packs work on halves
    const __m256i high = _mm256_packus_epi32(part[2], part[3]);
    if constexpr (kBytes == 2) {
      column[0] = _mm256_permute4x64_epi64(low, 0xD8);
      column[1] = _mm256_permute4x64_epi64(high, 0xD8);
    } else {
      column[0] =
          _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    }
  }
}

// Groups from `group` on that `words` hold, as far as there are so many.
template <class Bits, int kPart = 0>
void store_columns(const __m256i (&words)[4], std::int64_t group, const ScaleColumnArgs& args, __m256i& unusual) {
  if constexpr (kPart * Bits::kBytes < 4) {
    if (group + kPart >= args.groups) return;
    __m256i column[Bits::kBytes];
    split_words<Bits::kBytes, kPart>(words, column);
    std::byte* const out = args.out + (group + kPart) * kPanelRows * Bits::kBytes;
    for (std::int64_t i = 0; i < Bits::kBytes; ++i) {
      unusual = _mm256_or_si256(unusual, Bits::unusual(column[i]));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i * 32), column[i]);
    }
    store_columns<Bits, kPart + 1>(words, group, args, unusual);
  }
}

template <class Bits>
bool scale_columns(const ScaleColumnArgs& args) {
  __m256i unusual = _mm256_setzero_si256();
  if (args.row_bytes == Bits::kBytes) {  // columns already
    for (std::int64_t g = 0; g < args.groups; ++g) {
      for (std::int64_t i = 0; i < kPanelRows * Bits::kBytes; i += 32) {
        const __m256i column = load(args.scales + g * args.group_bytes + i);
        unusual = _mm256_or_si256(unusual, Bits::unusual(column));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(args.out + g * kPanelRows * Bits::kBytes + i), column);
      }
    }
    return _mm256_testz_si256(unusual, unusual) != 0;
  }
  constexpr std::int64_t kWordGroups = 4 / Bits::kBytes;
  for (std::int64_t first = 0; first < args.groups; first += kTileLines * kWordGroups) {
    __m256i x[kPanelRows / kTileRows][kTileRows];
    for (std::int64_t block = 0; block < kPanelRows / kTileRows; ++block) {
      const std::byte* const rows = args.scales + block * kTileRows * args.row_bytes + first * Bits::kBytes;
#pragma GCC unroll 8
      for (std::int64_t r = 0; r < kTileRows; ++r) x[block][r] = load(rows + r * args.row_bytes);
      transpose(x[block]);
    }
    for (std::int64_t word = 0; word < kTileLines; ++word)
      store_columns<Bits>({x[0][word], x[1][word], x[2][word], x[3][word]}, first + word * kWordGroups, args, unusual);
  }
  return _mm256_testz_si256(unusual, unusual) != 0;
}

}  // namespace

bool pack_scale_columns(const ScaleColumnArgs& args) {
  switch (args.form) {
    case ScaleCode::f32:
      return scale_columns<ScaleBits<ScaleCode::f32>>(args);
    case ScaleCode::f16:
      return scale_columns<ScaleBits<ScaleCode::f16>>(args);
    case ScaleCode::bf16:
      return scale_columns<ScaleBits<ScaleCode::bf16>>(args);
    case ScaleCode::e4m3:
      return scale_columns<ScaleBits<ScaleCode::e4m3>>(args);
    case ScaleCode::e8m0:
      return scale_columns<ScaleBits<ScaleCode::e8m0>>(args);
  }
  return false;
}

namespace {

// Calls use(bits of an element in the file, its words); with `stored`, of elements of the code's own width.
template <class Use>
bool with_words(WeightCode code, bool stored, std::uint8_t flip, const Use& use) {
  switch (code) {
    case WeightCode::int4:
    case WeightCode::e2m1:
      return stored ? use(4, NibbleWords(flip)) : use(8, Nibbles());
    case WeightCode::int8:
      return use(8, SignedBytes(flip));
    case WeightCode::e4m3:
      return use(8, FloatBytes());
    case WeightCode::bf16:
      return stored ? use(16, HalfWords(0x7F80)) : use(32, Bf16Pairs());
    case WeightCode::f16:
      return stored ? use(16, HalfWords(0x7C00)) : use(32, F16Pairs());
    case WeightCode::f32:
      return use(32, F32Words());
    case WeightCode::bf16x12:  // made of packed bf16 panels (bf16x12.h)
      break;
  }
  return false;
}

}  // namespace

bool pack_lines(const LineArgs& args) {
  return with_words(args.code, args.stored, args.flip,
                    [&](int bits, auto source) { return pack(args, args.columns * bits / 8, source); });
}

bool pack_word_lines(const WordLineArgs& args) {
  return with_words(args.code, true, args.flip, [&](int, auto source) {
    if constexpr (decltype(source)::kBytes == 32) return pack_words(args, source);
    return false;  // not of stored words
  });
}

void pack_scale_column(ScaleCode form, const float* scales, std::int64_t stride, std::byte* out) {
  const __m256i rows =
      _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(static_cast<int>(stride)));
#pragma GCC unroll 4
  for (std::int64_t first = 0; first < kPanelRows; first += kTileRows) {
    const __m256 values = _mm256_i32gather_ps(scales + first * stride, rows, 4);
    if (form == ScaleCode::f32) {
      _mm256_storeu_ps(reinterpret_cast<float*>(out + first * 4), values);
      continue;
    }
    __m128i halves = _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT);
    if (form == ScaleCode::bf16) {
      const __m256i words = Bf16Pairs::round(_mm256_castps_si256(values));
      halves = _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + first * 2), halves);
  }
}

}  // namespace moracle::cpu
