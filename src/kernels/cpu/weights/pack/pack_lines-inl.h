// Packing of panels (pack_lines.h) on vectors of V::kBytes bytes, written for any instruction set: V has kBytes,
// any(words), whether one is not zero, and halves(floats), two vectors of f32 as f16.
// A tile has as many rows and as many lines as a vector has lanes, and is transposed in registers.
#pragma once

#include <cstring>
#include <utility>

#include "kernels/cpu/simd/lane.h"
#include "kernels/cpu/weights/pack/pack_lines.h"

namespace moracle::cpu {

template <class V, class T>
using Vector = typename VectorOf<T, V::kBytes>::Type;
template <class V>
using Words = Vector<V, std::uint32_t>;
template <class V>
constexpr int kWordLanes = V::kBytes / 4;

constexpr std::int64_t kPackLineBytes = kPanelRows * 4;

template <class V, class T = std::uint32_t>
inline Vector<V, T> load_vector(const std::byte* at) {
  Vector<V, T> vector;
  std::memcpy(&vector, at, sizeof vector);
  return vector;
}
template <class V>
inline void store_vector(std::byte* at, Words<V> vector) {
  std::memcpy(at, &vector, sizeof vector);
}
// Element i of the result is element kOrder(i) of a, those of b behind it.
template <class V, class T, auto kOrder>
inline Words<V> shuffled(Words<V> a, Words<V> b) {
  const auto x = reinterpret_cast<Vector<V, T>>(a);
  const auto y = reinterpret_cast<Vector<V, T>>(b);
  return [&]<int... kAt>(std::integer_sequence<int, kAt...>) __attribute__((always_inline)) {
    return reinterpret_cast<Words<V>>(__builtin_shufflevector(x, y, kOrder(kAt)...));
  }(std::make_integer_sequence<int, V::kBytes / static_cast<int>(sizeof(T))>());
}
// The low halves of all elements twice as wide as T.
template <class V, class T>
inline Words<V> narrowed(Words<V> a, Words<V> b) {
  return shuffled<V, T, [](int i) { return 2 * i; }>(a, b);
}
// Elements of both in turn: the first ones of every 16 bytes, or with kLast the others.
template <class V, class T, bool kLast>
inline Words<V> zipped(Words<V> a, Words<V> b) {
  return shuffled<V, T, [](int i) {
    constexpr int kCount = 16 / static_cast<int>(sizeof(T));
    return i / kCount * kCount + (kLast ? kCount / 2 : 0) + i % kCount / 2 + i % 2 * (V::kBytes / 16 * kCount);
  }>(a, b);
}
// Bytes 1 and 2 of every word change places.
template <class V>
inline Words<V> inner_swapped(Words<V> a) {
  return shuffled<V, std::uint8_t, [](int i) { return i / 4 * 4 + i % 2 * 2 + i % 4 / 2; }>(a, a);
}

// x[i] lane j becomes x[j] lane i.
template <class V>
inline void transpose(Words<V> (&x)[kWordLanes<V>]) {
  constexpr int kLanes = kWordLanes<V>;
  Words<V> a[kLanes];
#pragma GCC unroll 4
  for (int i = 0; i < kLanes; i += 2) {
    a[i] = zipped<V, std::uint32_t, false>(x[i], x[i + 1]);
    a[i + 1] = zipped<V, std::uint32_t, true>(x[i], x[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < kLanes; i += 4) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      x[i + 2 * j] = zipped<V, std::uint64_t, false>(a[i + j], a[i + j + 2]);
      x[i + 2 * j + 1] = zipped<V, std::uint64_t, true>(a[i + j], a[i + j + 2]);
    }
  }
  if constexpr (kLanes == 8) {  // of two halves
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const Words<V> first = x[i];
      const Words<V> last = x[i + 4];
      x[i] = shuffled<V, std::uint32_t, [](int k) { return k % 4 + k / 4 * 8; }>(first, last);
      x[i + 4] = shuffled<V, std::uint32_t, [](int k) { return 4 + k % 4 + k / 4 * 8; }>(first, last);
    }
  }
}

// What makes a vector of words, of as many lines, out of kVectors vectors of a row: of canonical codes and values, or
// of raw ones.
template <class V>
struct PackSource {
  static constexpr int kVectors = 1;
  std::uint8_t padding = 0;  // bytes that mean code 0
  Words<V> unusual{};        // not zero: some were NaN or infinite
  static constexpr std::uint32_t kEveryByte = 0x01010101U;
};
template <class V>
struct PackNibbles : PackSource<V> {  // even columns in the low half of the word, odd ones in the high half
  static constexpr int kVectors = 2;
  static Words<V> pairs(const std::byte* at) {  // in bytes 0, 4, 1 and 5 of every eight
    const auto codes = load_vector<V, std::uint64_t>(at);
    return reinterpret_cast<Words<V>>(codes | codes >> 12U);
  }
  static Words<V> words(const std::byte* at) {
    return shuffled<V, std::uint8_t, [](int i) { return i / 4 * 8 + i % 2 * 4 + i % 4 / 2; }>(pairs(at),
                                                                                              pairs(at + V::kBytes));
  }
};
template <class V>
struct PackNibbleWords : PackSource<V> {  // the same, from words of eight nibbles in order
  Words<V> words(const std::byte* at) const {
    const Words<V> x = load_vector<V>(at) ^ this->padding * this->kEveryByte;
    const Words<V> inner = (x ^ x >> 4U) & 0x00F000F0U;  // nibbles 1 and 2 of each half word change places
    return inner_swapped<V>(x ^ inner ^ inner << 4U);
  }
};
template <class V>
struct PackSignedBytes : PackSource<V> {  // to two's complement
  Words<V> words(const std::byte* at) const { return load_vector<V>(at) ^ (this->padding ^ 0x80U) * this->kEveryByte; }
};
template <class V>
struct PackFloatBytes : PackSource<V> {
  Words<V> words(const std::byte* at) {
    const auto codes = load_vector<V, std::uint8_t>(at);
    this->unusual |= reinterpret_cast<Words<V>>((codes & 0x7F) == 0x7F);
    return inner_swapped<V>(reinterpret_cast<Words<V>>(codes));
  }
};
template <class V>
struct PackBf16Pairs : PackSource<V> {
  static constexpr int kVectors = 2;
  static Words<V> rounded(Words<V> bits) { return (bits + 0x7FFFU + (bits >> 16U & 1U)) >> 16U; }  // to nearest even
  static Words<V> words(const std::byte* at) {
    return narrowed<V, std::uint16_t>(rounded(load_vector<V>(at)), rounded(load_vector<V>(at + V::kBytes)));
  }
};
template <class V>
struct PackF16Pairs : PackSource<V> {
  static constexpr int kVectors = 2;
  static Words<V> words(const std::byte* at) { return V::halves(at); }
};
template <class V, class T, T kExponent>
struct PackNumbers : PackSource<V> {  // kept as they are; those whose exponent is all ones are NaN or infinite
  Words<V> words(const std::byte* at) {
    const auto bits = load_vector<V, T>(at);
    this->unusual |= reinterpret_cast<Words<V>>((bits & kExponent) == kExponent);
    return reinterpret_cast<Words<V>>(bits);
  }
};

// Calls use(bits of an element in the file, its words); with `raw`, of elements of the code's own width.
template <class V, class Use>
bool with_words(WeightCode code, bool raw, std::uint8_t flip, const Use& use) {
  switch (code) {
    case WeightCode::int4:
    case WeightCode::e2m1:
      return raw ? use(4, PackNibbleWords<V>{{flip}}) : use(8, PackNibbles<V>{});
    case WeightCode::int8:
      return use(8, PackSignedBytes<V>{{flip}});
    case WeightCode::e4m3:
      return use(8, PackFloatBytes<V>{});
    case WeightCode::bf16:
      return raw ? use(16, PackNumbers<V, std::uint16_t, 0x7F80>{}) : use(32, PackBf16Pairs<V>{});
    case WeightCode::f16:
      return raw ? use(16, PackNumbers<V, std::uint16_t, 0x7C00>{}) : use(32, PackF16Pairs<V>{});
    case WeightCode::f32:
      return use(32, PackNumbers<V, std::uint32_t, 0x7F800000U>{});
    case WeightCode::bf16x12:  // made of packed bf16 panels (bf16x12-inl.h)
      break;
  }
  return false;
}

// Where the lines of a panel lie, one after the other.
template <class V>
class LinePlaces {
 public:
  explicit LinePlaces(const LineArgs& args) : args_(args), out_(args.out), left_(args.group_left) {}
  std::byte* next() {
    if (left_ == 0) {
      left_ = args_.group_lines;
      out_ += args_.group_tail;
    }
    --left_;
    std::byte* const line = out_;
    out_ += kPackLineBytes;
    return line;
  }

 private:
  const LineArgs& args_;
  std::byte* out_;
  std::int64_t left_;
};

// A vector of lines of all rows; of the last ones only `lines` are there.
template <class V, class Source>
void pack_tile(Source& source, const std::byte* rows, std::int64_t stride, std::int64_t count,
               std::byte* const (&line)[kWordLanes<V>], std::int64_t lines) {
  constexpr int kLanes = kWordLanes<V>;
  for (std::int64_t first = 0; first < kPanelRows; first += kLanes) {
    Words<V> x[kLanes];
#pragma GCC unroll 8
    for (int r = 0; r < kLanes; ++r) {
      x[r] = first + r < count ? source.words(rows + (first + r) * stride) : Words<V>{};
    }
    transpose<V>(x);
#pragma GCC unroll 8
    for (int i = 0; i < kLanes; ++i) {
      if (i < lines) store_vector<V>(line[i] + first * 4, x[i]);
    }
  }
}

template <class V, class Source>
bool pack_rows_of(const LineArgs& args, std::int64_t bytes, Source source) {
  constexpr int kLanes = kWordLanes<V>;
  constexpr std::int64_t kTileBytes = Source::kVectors * V::kBytes;
  LinePlaces<V> places(args);
  for (std::int64_t done = 0, at = 0; done < args.lines; done += kLanes, at += kTileBytes) {
    const std::int64_t lines = args.lines - done < kLanes ? args.lines - done : kLanes;
    std::byte* line[kLanes];
    for (std::int64_t i = 0; i < lines; ++i) line[i] = places.next();
    if (at + kTileBytes <= bytes) {
      pack_tile<V>(source, args.from + at, args.stride, args.rows, line, lines);
      continue;
    }
    alignas(V::kBytes) std::byte tail[kPanelRows * kTileBytes];
    std::memset(tail, source.padding, sizeof tail);
    for (std::int64_t r = 0; r < args.rows && at < bytes; ++r) {
      std::memcpy(tail + r * kTileBytes, args.from + r * args.stride + at, static_cast<std::size_t>(bytes - at));
    }
    pack_tile<V>(source, tail, kTileBytes, args.rows, line, lines);
  }
  return !V::any(source.unusual);
}

// Words of one line, of `rows` rows.
template <class V, class Source>
void copy_line(Source& source, const std::byte* words, std::int64_t rows, std::byte* line) {
  const auto copy = [&](const std::byte* from, std::byte* to) {
#pragma GCC unroll 8
    for (std::int64_t i = 0; i < kPackLineBytes; i += V::kBytes) store_vector<V>(to + i, source.words(from + i));
  };
  if (rows >= kPanelRows) return copy(words, line);
  const auto bytes = static_cast<std::size_t>(rows * 4);
  alignas(V::kBytes) std::byte some[kPackLineBytes] = {};
  std::memcpy(some, words, bytes);
  copy(some, some);
  std::memset(line, 0, kPackLineBytes);
  std::memcpy(line, some, bytes);
}

// A block of lines of all panels, then the next: as many runs are read as it has lines, each from its begin to its end.
template <class V, class Source>
bool pack_words_of(const LineArgs& args, Source source) {
  constexpr std::int64_t kBlockLines = 16;
  alignas(V::kBytes) std::byte padding[kPackLineBytes];
  std::memset(padding, source.padding, sizeof padding);
  LinePlaces<V> places(args);
  for (std::int64_t first = 0; first < args.lines; first += kBlockLines) {
    const std::int64_t lines = args.lines - first < kBlockLines ? args.lines - first : kBlockLines;
    std::byte* line[kBlockLines];
    for (std::int64_t i = 0; i < lines; ++i) line[i] = places.next();
    std::int64_t panel = 0;
    for (std::int64_t row = 0; row < args.rows; row += kPanelRows, panel += args.panel_stride) {
      for (std::int64_t i = 0; i < lines; ++i) {
        const bool there = first + i < args.columns;
        copy_line<V>(source, there ? args.from + (first + i) * args.stride + row * 4 : padding, args.rows - row,
                     line[i] + panel);
      }
    }
  }
  return !V::any(source.unusual);
}

template <class V>
bool pack_lines_on(const LineArgs& args) {
  return with_words<V>(args.code, args.raw, args.flip,
                       [&](int bits, auto source) { return pack_rows_of<V>(args, args.columns * bits / 8, source); });
}
template <class V>
bool pack_word_lines_on(const LineArgs& args) {
  return with_words<V>(args.code, true, args.flip, [&](int, auto source) {
    if constexpr (decltype(source)::kVectors == 1) return pack_words_of<V>(args, source);
    return false;  // not of raw codes
  });
}

// Those scales are usual whose magnitude lies between zero and kLimit; all bits of e8m0, which has no sign, count.
template <class V, class T, T kMagnitude, T kLimit>
bool stored_scales_of(const std::byte* from, std::int64_t stride, std::byte* out) {
  const auto copy = [&]<int kStride>(std::integral_constant<int, kStride>) __attribute__((always_inline)) {
    T unusual = 0;
    for (int row = 0; row < kPanelRows; ++row) {
      T scale;
      std::memcpy(&scale, from + row * kStride, sizeof scale);
      const T magnitude = scale & kMagnitude;
      unusual |= magnitude == 0 || magnitude >= kLimit ? T{1} : T{0};
      std::memcpy(out + row * static_cast<int>(sizeof scale), &scale, sizeof scale);
    }
    return unusual == 0;
  };
  return stride == 4 ? copy(std::integral_constant<int, 4>()) : copy(std::integral_constant<int, sizeof(T)>());
}

template <class V>
bool pack_stored_scales_on(ScaleCode form, const std::byte* from, std::int64_t stride, std::byte* out) {
  if (form == ScaleCode::f16) return stored_scales_of<V, std::uint16_t, 0x7FFF, 0x7C00>(from, stride, out);
  if (form == ScaleCode::bf16) return stored_scales_of<V, std::uint16_t, 0x7FFF, 0x7F80>(from, stride, out);
  if (form == ScaleCode::e4m3) return stored_scales_of<V, std::uint8_t, 0x7F, 0x7F>(from, stride, out);
  if (form == ScaleCode::e8m0) return stored_scales_of<V, std::uint8_t, 0xFF, 0xFF>(from, stride, out);
  return stored_scales_of<V, std::uint32_t, 0x7FFFFFFFU, 0x7F800000U>(from, stride, out);
}

template <class V>
void pack_scale_column_on(ScaleCode form, const float* scales, std::byte* out) {
  const auto* const from = reinterpret_cast<const std::byte*>(scales);
  if (form == ScaleCode::f32) {
    std::memcpy(out, from, kPanelRows * sizeof(float));
    return;
  }
  for (std::int64_t i = 0; i < kPanelRows * 2; i += V::kBytes)
    store_vector<V>(out + i, form == ScaleCode::bf16 ? PackBf16Pairs<V>::words(from + 2 * i) : V::halves(from + 2 * i));
}

}  // namespace moracle::cpu
