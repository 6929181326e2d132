#include "kernels/cpu/compact.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/checked.h"
#include "kernels/cpu/panel.h"

namespace moracle::cpu {

namespace {

constexpr std::int64_t kHalves = 2 * kPanelRows;  // weights of a line of a step
constexpr std::int64_t kLines = 4;                // of a plain step: columns 2k and 2k + 1 of all rows
constexpr std::uint16_t kExponents = 15;          // in a row; the sixteenth code is an exponent of zero
constexpr int kLastBase = 240;
// Of which so many words are looked at to choose the exponents: one in seven, which is prime to the lines of a step.
constexpr std::int64_t kSampling = 7;

std::uint16_t exponent_of(std::uint16_t weight) {
  return static_cast<std::uint16_t>((weight >> 7U) & 0xFFU);
}

// The first of the 15 exponents that hold most of the panel.
int choose_base(const std::uint16_t* weights, std::int64_t count) {
  std::array<std::int64_t, 256> seen{};
  for (std::int64_t i = 0; i < count; i += kSampling) ++seen[exponent_of(weights[i])];
  std::int64_t held = 0;
  for (int e = 1; e <= kExponents; ++e) held += seen[static_cast<std::size_t>(e)];
  int base = 1;
  std::int64_t most = held;
  for (int first = 2; first <= kLastBase; ++first) {
    held += seen[static_cast<std::size_t>(first + kExponents - 1)] - seen[static_cast<std::size_t>(first - 1)];
    if (held > most) {
      most = held;
      base = first;
    }
  }
  return base;
}

struct Line {
  std::uint16_t bytes[kHalves];   // sign and mantissa
  std::uint16_t nibble[kHalves];  // code of the exponent
};

// Whether all weights of the line are held; those that are not become zeros. Plain loops, which compilers vectorize.
bool split_line(const std::uint16_t* weights, std::uint16_t base, Line& line) {
  std::uint16_t outside = 0;
  for (std::int64_t i = 0; i < kHalves; ++i) {
    const std::uint16_t weight = weights[i];
    const auto exponent = static_cast<std::uint16_t>((weight >> 7U) & 0xFFU);
    const auto code = static_cast<std::uint16_t>(exponent - base);
    const bool inside = code < kExponents;
    const std::uint16_t kept = inside || exponent == 0 ? 0xFFFF : 0;
    line.nibble[i] = inside ? code : kExponents;
    line.bytes[i] = static_cast<std::uint16_t>((((weight >> 8U) & 0x80U) | (weight & 0x7FU)) & kept);
    outside = static_cast<std::uint16_t>(outside | static_cast<std::uint16_t>(~kept));
  }
  return outside == 0;
}

// Adds those weights of a line that are not held. False: no room is left.
bool list_outside(const std::uint16_t* weights, int base, std::int64_t first_column, CompactTail& tail) {
  for (std::int64_t i = 0; i < kHalves; ++i) {
    const int exponent = exponent_of(weights[i]);
    if (exponent == 0 || (exponent >= base && exponent < base + kExponents)) continue;
    if (tail.count == kMostOutside) return false;
    tail.outside[tail.count++] = {.column = narrow<std::uint32_t>(first_column + i % 2),
                                  .row = static_cast<std::uint16_t>(i / 2),
                                  .weight = weights[i]};
  }
  return true;
}

}  // namespace

bool compact_panel(const std::byte* plain, std::int64_t steps, std::byte* out) {
  std::array<std::uint16_t, kLines * kHalves> weights;
  const auto* const all = reinterpret_cast<const std::uint16_t*>(plain);
  const int base = choose_base(all, steps * std::ssize(weights));
  CompactTail tail{};
  tail.factor = std::ldexp(1.0F, base - kCompactBase);
  for (std::int64_t s = 0; s < steps; ++s) {
    std::memcpy(weights.data(), plain + s * static_cast<std::int64_t>(sizeof weights), sizeof weights);
    std::array<Line, kLines> lines;
    for (std::int64_t k = 0; k < kLines; ++k) {
      const std::uint16_t* const line = weights.data() + k * kHalves;
      if (split_line(line, static_cast<std::uint16_t>(base), lines[static_cast<std::size_t>(k)])) continue;
      if (!list_outside(line, base, s * kStepColumns + 2 * k, tail)) return false;
    }
    std::array<std::uint16_t, 3 * kHalves> step;
    for (std::size_t i = 0; i < kHalves; ++i) {
      step[i] = static_cast<std::uint16_t>(lines[0].bytes[i] | lines[1].bytes[i] << 8U);
      step[kHalves + i] = static_cast<std::uint16_t>(lines[2].bytes[i] | lines[3].bytes[i] << 8U);
      step[2 * kHalves + i] = static_cast<std::uint16_t>(lines[0].nibble[i] | lines[1].nibble[i] << 4U |
                                                         lines[2].nibble[i] << 8U | lines[3].nibble[i] << 12U);
    }
    std::memcpy(out, step.data(), sizeof step);
    out += sizeof step;
  }
  std::memcpy(out, &tail, sizeof tail);
  return true;
}

}  // namespace moracle::cpu
