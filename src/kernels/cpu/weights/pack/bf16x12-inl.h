// bf16 weights in 12 bits, without loss, packed on vectors (pack_lines-inl.h): of the high byte, which is the sign and
// the upper seven bits of the exponent, a nibble says which of 16 it is; the low byte stays as it is. Numbers of other
// exponents are kept in a list behind the panel (Bf16x12Tail). Matrices that do not fit stay as they are.
#pragma once

#include "kernels/cpu/weights/pack/pack_lines-inl.h"

namespace moracle::cpu {

constexpr std::uint32_t kBf16x12Pairs = 7;  // of exponents, in a row; the eighth code is a zero

// The first of the pairs of exponents that hold most of a panel of plain numbers.
template <class V>
std::uint32_t bf16x12_base(const std::uint16_t* weights, std::int64_t steps) {
  constexpr std::uint32_t kLastBase = 120;
  // One weight in so many is looked at; prime to the lines of a step.
  constexpr std::int64_t kSampling = 29;
  std::uint32_t seen[128] = {};
  for (std::int64_t i = 0; i < steps * kStepColumns * kPanelRows; i += kSampling) ++seen[weights[i] >> 8U & 0x7FU];
  std::uint32_t held = 0;
  for (std::uint32_t pair = 1; pair <= kBf16x12Pairs; ++pair) held += seen[pair];
  std::uint32_t base = 1;
  std::uint32_t most = held;
  for (std::uint32_t first = 2; first <= kLastBase; ++first) {
    held += seen[first + kBf16x12Pairs - 1] - seen[first - 1];
    if (held > most) {
      most = held;
      base = first;
    }
  }
  return base;
}

// As many rows as a vector has lanes, by 4 columns. Bytes in the order of the layout: of every 4 rows, those of the
// first line before those of the second.
template <class V>
struct Bf16x12Bytes {
  using Bytes = Vector<V, std::uint8_t>;
  Bytes low;         // zero where a weight is an exception
  Bytes codes;       // nibbles, of the high ones
  Bytes exceptions;  // not zero where a weight is one

  // Of two lines of plain numbers.
  Bf16x12Bytes(const std::byte* line, std::uint32_t base) {
    const Words<V> first = load_vector<V>(line);
    const Words<V> second = load_vector<V>(line + kPackLineBytes);
    constexpr auto kLow = [](int i) { return i / 16 * 16 + i % 8 * 2 + i % 16 / 8 * V::kBytes; };
    constexpr auto kHigh = [](int i) { return i / 16 * 16 + i % 8 * 2 + 1 + i % 16 / 8 * V::kBytes; };
    const auto bytes = reinterpret_cast<Bytes>(shuffled<V, std::uint8_t, kLow>(first, second));
    const auto high = reinterpret_cast<Bytes>(shuffled<V, std::uint8_t, kHigh>(first, second));
    const Bytes exponents = high & 0x7F;
    const Bytes pair = exponents - static_cast<std::uint8_t>(base);
    constexpr auto kNone = static_cast<std::uint8_t>(kBf16x12Pairs);
    const Bytes code = pair < kNone ? pair : Bytes{} + kNone;
    const auto outside = reinterpret_cast<Bytes>(code == kNone);
    low = bytes & ~outside;
    codes = (high >> 4 & 8) | code;
    exceptions = outside & (bytes | exponents);
  }

  // Adds the weights that are exceptions to those of `tail`. False: no room is left.
  [[nodiscard]] bool list(const std::byte* line, std::int64_t first_row, std::int64_t first_column,
                          Bf16x12Tail& tail) const {
    for (int byte = 0; byte < V::kBytes; ++byte) {
      if (exceptions[byte] == 0) continue;
      if (tail.count == kMaxExceptions) return false;
      const int row = byte / 16 * 4 + byte % 8 / 2;
      const int later_line = byte % 16 / 8;
      Bf16x12Tail::Exception& one = tail.exceptions[tail.count++];
      one.column = static_cast<std::uint32_t>(first_column + 2 * later_line + byte % 2);
      one.row = static_cast<std::uint16_t>(first_row + row);
      std::memcpy(&one.weight, line + later_line * kPackLineBytes + row * 4 + byte % 2 * 2, sizeof one.weight);
    }
    return true;
  }
};

template <class V>
bool pack_bf16x12_on(const std::byte* plain, std::int64_t steps, std::byte* out) {
  const std::uint32_t base = bf16x12_base<V>(reinterpret_cast<const std::uint16_t*>(plain), steps);
  Bf16x12Tail tail = {};
  const int power = 2 * (static_cast<int>(base) - kBf16x12Pair);  // of two, that codes lack
  tail.factor = __builtin_bit_cast(float, static_cast<std::uint32_t>(127 + power) << 23U);
  for (std::int64_t column = 0; column < steps * kStepColumns; column += kStepColumns) {
    for (std::int64_t row = 0; row < kPanelRows; row += kWordLanes<V>) {
      const std::byte* const line = plain + row * 4;
      const Bf16x12Bytes<V> first(line, base);
      const Bf16x12Bytes<V> second(line + 2 * kPackLineBytes, base);
      std::byte* const to = out + row * 4;
      store_vector<V>(to, reinterpret_cast<Words<V>>(first.low));
      store_vector<V>(to + kPackLineBytes, reinterpret_cast<Words<V>>(second.low));
      store_vector<V>(to + 2 * kPackLineBytes, reinterpret_cast<Words<V>>(first.codes | second.codes << 4));
      if (!V::any(reinterpret_cast<Words<V>>(first.exceptions | second.exceptions))) continue;
      if (!first.list(line, row, column, tail)) return false;
      if (!second.list(line + 2 * kPackLineBytes, row, column + 4, tail)) return false;
    }
    plain += 4 * kPackLineBytes;
    out += 3 * kPackLineBytes;
  }
  std::memcpy(out, &tail, sizeof tail);
  return true;
}

template <class V>
constexpr Packing packing_on() {
  return {pack_lines_on<V>, pack_word_lines_on<V>, pack_stored_scales_on<V>, pack_scale_column_on<V>,
          pack_bf16x12_on<V>};
}

}  // namespace moracle::cpu
