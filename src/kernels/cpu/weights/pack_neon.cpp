// Packing of panels, word by word: a word of a line is made of 4 to 16 bytes of its row (panel.h). Eight codes of 4
// bits cost about ten operations.
//
// Compiled on aarch64 with -march=armv8.2-a
#include <cstring>

#include "kernels/cpu/weights/bf16x12-inl.h"
#include "kernels/cpu/weights/bf16x12.h"
#include "kernels/cpu/weights/pack_lines.h"

namespace moracle::cpu {
namespace {

struct V;  // the tag of templates

constexpr std::int64_t kLineBytes = kPanelRows * 4;
constexpr std::uint32_t kEveryByte = 0x01010101U;

template <class T>
T read(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// What makes a word out of kBytes bytes of a row, of canonical codes and values or of a stored word (4 bytes).
// `padding` are bytes that mean code 0.
struct Source {
  std::uint8_t padding = 0;
  bool usual = true;  // whether all were numbers
};
struct Nibbles : Source {  // even columns in the low half of the word, odd ones in the high half
  static constexpr std::int64_t kBytes = 8;
  static std::uint32_t half(std::uint64_t codes) {  // of every other byte
    const std::uint64_t pairs = (codes | codes >> 12U) & 0x000000FF000000FFU;
    return static_cast<std::uint32_t>(pairs | pairs >> 24U) & 0xFFFFU;
  }
  static std::uint32_t word(const std::byte* at) {
    const auto codes = read<std::uint64_t>(at);
    return half(codes & 0x000F000F000F000FU) | half(codes >> 8U & 0x000F000F000F000FU) << 16U;
  }
};
struct NibbleWords : Source {  // the same, from words of eight nibbles in order
  static constexpr std::int64_t kBytes = 4;
  static std::uint32_t half(std::uint32_t nibbles) {
    const std::uint32_t pairs = (nibbles | nibbles >> 4U) & 0x00FF00FFU;
    return (pairs | pairs >> 8U) & 0xFFFFU;
  }
  [[nodiscard]] std::uint32_t word(const std::byte* at) const {
    const std::uint32_t nibbles = read<std::uint32_t>(at) ^ padding * kEveryByte;
    return half(nibbles & 0x0F0F0F0FU) | half(nibbles >> 4U & 0x0F0F0F0FU) << 16U;
  }
};
struct SignedBytes : Source {  // to two's complement
  static constexpr std::int64_t kBytes = 4;
  [[nodiscard]] std::uint32_t word(const std::byte* at) const {
    return read<std::uint32_t>(at) ^ (padding ^ 0x80U) * kEveryByte;
  }
};
struct FloatBytes : Source {  // bytes 1 and 2 of a word change places
  static constexpr std::int64_t kBytes = 4;
  std::uint32_t word(const std::byte* at) {
    const auto codes = read<std::uint32_t>(at);
    // A magnitude of 0x7F carries into its byte's highest bit.
    usual = usual && (((codes & 0x7F * kEveryByte) + kEveryByte) & 0x80 * kEveryByte) == 0;
    return (codes & 0xFF0000FFU) | (codes & 0xFF00U) << 8U | (codes >> 8U & 0xFF00U);
  }
};
std::uint32_t bf16_of(std::uint32_t bits) {  // to nearest even
  return (bits + 0x7FFFU + (bits >> 16U & 1U)) >> 16U;
}
std::uint32_t f16_of(float value) {
  return __builtin_bit_cast(std::uint16_t, static_cast<__fp16>(value));
}
struct Bf16Pairs : Source {
  static constexpr std::int64_t kBytes = 8;
  static std::uint32_t word(const std::byte* at) {
    return bf16_of(read<std::uint32_t>(at)) | bf16_of(read<std::uint32_t>(at + 4)) << 16U;
  }
};
struct F16Pairs : Source {
  static constexpr std::int64_t kBytes = 8;
  static std::uint32_t word(const std::byte* at) {
    return f16_of(read<float>(at)) | f16_of(read<float>(at + 4)) << 16U;
  }
};
template <std::uint32_t kExponents>
struct Numbers : Source {  // one of 32 bits or two of 16, kept as they are; those whose exponent is all ones are none
  static constexpr std::int64_t kBytes = 4;
  std::uint32_t word(const std::byte* at) {
    const auto bits = read<std::uint32_t>(at);
    constexpr std::uint32_t kLow = kExponents & 0xFFFFU;
    constexpr std::uint32_t kHigh = kExponents & 0xFFFF0000U;
    usual = usual && (bits & kHigh) != kHigh && (kLow == 0 || (bits & kLow) != kLow);
    return bits;
  }
};

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
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < args.lines; ++i, at += Words::kBytes) {
    std::byte* const line = places.next();
    const std::int64_t there = bytes - at;
    std::memset(line, 0, kLineBytes);
    for (std::int64_t row = 0; row < args.count; ++row) {
      const std::byte* from = args.rows + row * args.stride + at;
      std::byte some[Words::kBytes];
      if (there < Words::kBytes) {
        std::memset(some, source.padding, sizeof some);
        if (there > 0) std::memcpy(some, from, static_cast<std::size_t>(there));
        from = some;
      }
      const std::uint32_t word = source.word(from);
      std::memcpy(line + row * 4, &word, sizeof word);
    }
  }
  return source.usual;
}

template <class Words>
bool pack_words(const WordLineArgs& args, Words source) {
  std::byte padding[4];
  std::memset(padding, source.padding, sizeof padding);
  LinePlaces places(args.out, args.group_left, args.group_lines, args.group_tail);
  for (std::int64_t i = 0; i < args.lines; ++i) {
    std::byte* line = places.next();
    for (std::int64_t row = 0; row < args.rows; row += kPanelRows, line += args.panel_stride) {
      std::memset(line, 0, kLineBytes);
      for (std::int64_t r = 0; r < kPanelRows && row + r < args.rows; ++r) {
        const std::uint32_t word =
            source.word(i < args.columns ? args.words + i * args.stride + (row + r) * 4 : padding);
        std::memcpy(line + r * 4, &word, sizeof word);
      }
    }
  }
  return source.usual;
}

// Calls use(bits of an element in the file, its words); with `stored`, of elements of the code's own width.
template <class Use>
bool with_words(WeightCode code, bool stored, std::uint8_t flip, const Use& use) {
  switch (code) {
    case WeightCode::int4:
    case WeightCode::e2m1:
      return stored ? use(4, NibbleWords{{flip}}) : use(8, Nibbles{});
    case WeightCode::int8:
      return use(8, SignedBytes{{flip}});
    case WeightCode::e4m3:
      return use(8, FloatBytes{});
    case WeightCode::bf16:
      return stored ? use(16, Numbers<0x7F807F80U>{}) : use(32, Bf16Pairs{});
    case WeightCode::f16:
      return stored ? use(16, Numbers<0x7C007C00U>{}) : use(32, F16Pairs{});
    case WeightCode::f32:
      return use(32, Numbers<0x7F800000U>{});
    case WeightCode::bf16x12:  // made of packed bf16 panels (bf16x12.h)
      break;
  }
  return false;
}

// Scales of 32 rows and all groups, in words of their width. Those are usual whose magnitude lies between zero and
// kLimit, of e8m0, which has no sign, all bits counting.
template <class Word, std::uint32_t kMagnitude, std::uint32_t kLimit>
bool scale_columns(const ScaleColumnArgs& args) {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Word));
  bool usual = true;
  for (std::int64_t g = 0; g < args.groups; ++g) {
    for (std::int64_t row = 0; row < kPanelRows; ++row) {
      const auto scale = read<Word>(args.scales + row * args.row_bytes + g * args.group_bytes);
      const std::uint32_t magnitude = scale & kMagnitude;
      usual = usual && magnitude != 0 && magnitude < kLimit;
      std::memcpy(args.out + (g * kPanelRows + row) * kBytes, &scale, sizeof scale);
    }
  }
  return usual;
}

}  // namespace

bool pack_lines(const LineArgs& args) {
  return with_words(args.code, args.stored, args.flip,
                    [&](int bits, auto source) { return pack(args, args.columns * bits / 8, source); });
}

bool pack_word_lines(const WordLineArgs& args) {
  return with_words(args.code, true, args.flip, [&](int, auto source) {
    if constexpr (decltype(source)::kBytes == 4) return pack_words(args, source);
    return false;  // not of stored words
  });
}

bool pack_scale_columns(const ScaleColumnArgs& args) {
  switch (args.form) {
    case ScaleCode::f32:
      return scale_columns<std::uint32_t, 0x7FFFFFFFU, 0x7F800000U>(args);
    case ScaleCode::f16:
      return scale_columns<std::uint16_t, 0x7FFFU, 0x7C00U>(args);
    case ScaleCode::bf16:
      return scale_columns<std::uint16_t, 0x7FFFU, 0x7F80U>(args);
    case ScaleCode::e4m3:
      return scale_columns<std::uint8_t, 0x7FU, 0x7FU>(args);
    case ScaleCode::e8m0:
      return scale_columns<std::uint8_t, 0xFFU, 0xFFU>(args);
  }
  return false;
}

void pack_scale_column(ScaleCode form, const float* scales, std::int64_t stride, std::byte* out) {
  for (std::int64_t row = 0; row < kPanelRows; ++row) {
    const float scale = scales[row * stride];
    if (form == ScaleCode::f32) {
      std::memcpy(out + row * 4, &scale, sizeof scale);
      continue;
    }
    const bool bf16 = form == ScaleCode::bf16;
    const auto half =
        static_cast<std::uint16_t>(bf16 ? bf16_of(__builtin_bit_cast(std::uint32_t, scale)) : f16_of(scale));
    std::memcpy(out + row * 2, &half, sizeof half);
  }
}

bool pack_bf16x12(const std::byte* plain, std::int64_t steps, std::byte* out) {
  const std::uint32_t base = bf16x12_base<V>(reinterpret_cast<const std::uint16_t*>(plain), steps);
  Bf16x12Tail tail = {};
  tail.factor = bf16x12_factor<V>(base);
  for (std::int64_t step = 0; step < steps; ++step, plain += 4 * kLineBytes, out += 3 * kLineBytes) {
    std::memset(out, 0, 3 * kLineBytes);
    for (std::int64_t i = 0; i < kStepColumns * kPanelRows; ++i) {
      const std::int64_t row = i / kStepColumns;
      const std::int64_t column = i % kStepColumns;
      const auto weight = read<std::uint16_t>(plain + column / 2 * kLineBytes + row * 4 + column % 2 * 2);
      const std::int64_t at = row / 4 * 16 + column % 4 / 2 * 8 + row % 4 * 2 + column % 2;
      const std::uint32_t pair = (weight >> 8U & 0x7FU) - base;
      const bool inside = pair < kBf16x12Pairs;
      if (inside) out[column / 4 * kLineBytes + at] = static_cast<std::byte>(weight);
      const std::uint32_t code = (weight >> 12U & 8U) | (inside ? pair : kBf16x12Pairs);
      out[2 * kLineBytes + at] |= static_cast<std::byte>(code << column / 4 * 4);
      if (inside || (weight & 0x7FFFU) == 0) continue;
      if (tail.count == kMaxExceptions) return false;
      tail.exceptions[tail.count++] = {.column = static_cast<std::uint32_t>(step * kStepColumns + column),
                                       .row = static_cast<std::uint16_t>(row),
                                       .weight = weight};
    }
  }
  std::memcpy(out, &tail, sizeof tail);
  return true;
}

}  // namespace moracle::cpu
