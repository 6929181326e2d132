// bf16 weights in 12 bits (compact.h). Plain loops over lines of 64 weights, which compilers make vectors of.
#include "kernels/cpu/compact.h"

#include "kernels/cpu/panel.h"

namespace moracle::cpu {

namespace {

constexpr std::int64_t kHalves = 2 * kPanelRows;  // weights of a line: columns 2k and 2k + 1 of all rows
constexpr std::int64_t kLines = 4;                // of a step of plain numbers
constexpr std::int64_t kStepWeights = kLines * kHalves;
constexpr std::uint32_t kExponents = 15;  // in a row; the sixteenth code is an exponent of zero
constexpr std::uint32_t kLastBase = 240;
// One weight in so many is looked at to choose the exponents; prime to the lines of a step.
constexpr std::int64_t kSampling = 29;

std::uint32_t exponent_of(std::uint32_t weight) {
  return weight >> 7U & 0xFFU;
}

// The first of the 15 exponents that hold most of the panel.
std::uint32_t choose_base(const std::uint16_t* weights, std::int64_t count) {
  std::uint32_t seen[256] = {};
  for (std::int64_t i = 0; i < count; i += kSampling) ++seen[exponent_of(weights[i])];
  std::uint32_t held = 0;
  for (std::uint32_t e = 1; e <= kExponents; ++e) held += seen[e];
  std::uint32_t base = 1;
  std::uint32_t most = held;
  for (std::uint32_t first = 2; first <= kLastBase; ++first) {
    held += seen[first + kExponents - 1] - seen[first - 1];
    if (held > most) {
      most = held;
      base = first;
    }
  }
  return base;
}

// 2^power, |power| < 127.
float power_of_two(int power) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(127 + power) << 23U);
}

struct Line {
  std::uint16_t bytes[kHalves];   // sign and mantissa
  std::uint16_t nibble[kHalves];  // code of the exponent
};

// Whether all weights of the line are held; those that are not become zeros.
bool split_line(const std::uint16_t* weights, std::uint16_t base, Line& line) {
  std::uint16_t outside = 0;
  for (std::int64_t i = 0; i < kHalves; ++i) {
    const std::uint16_t weight = weights[i];
    const auto exponent = static_cast<std::uint16_t>(weight >> 7U & 0xFFU);
    const auto code = static_cast<std::uint16_t>(exponent - base);
    const bool inside = code < kExponents;
    const std::uint16_t kept = inside || exponent == 0 ? 0xFFFF : 0;
    line.nibble[i] = inside ? code : static_cast<std::uint16_t>(kExponents);
    line.bytes[i] = static_cast<std::uint16_t>(((weight >> 8U & 0x80U) | (weight & 0x7FU)) & kept);
    outside = static_cast<std::uint16_t>(outside | static_cast<std::uint16_t>(~kept));
  }
  return outside == 0;
}

// Adds those weights of a line that are not held. False: no room is left.
bool list_outside(const std::uint16_t* weights, std::uint32_t base, std::int64_t first_column, CompactTail& tail) {
  for (std::int64_t i = 0; i < kHalves; ++i) {
    const std::uint32_t exponent = exponent_of(weights[i]);
    if (exponent == 0 || (exponent >= base && exponent < base + kExponents)) continue;
    if (tail.count == kMostOutside) return false;
    tail.outside[tail.count++] = {.column = static_cast<std::uint32_t>(first_column + i % 2),
                                  .row = static_cast<std::uint16_t>(i / 2),
                                  .weight = weights[i]};
  }
  return true;
}

}  // namespace

bool compact_panel(const std::byte* plain, std::int64_t steps, std::byte* out) {
  const auto* weights = reinterpret_cast<const std::uint16_t*>(plain);
  const std::uint32_t base = choose_base(weights, steps * kStepWeights);
  CompactTail tail = {};
  tail.factor = power_of_two(static_cast<int>(base) - kCompactBase);
  for (std::int64_t s = 0; s < steps; ++s, weights += kStepWeights) {
    Line lines[kLines];
    for (std::int64_t k = 0; k < kLines; ++k) {
      if (split_line(weights + k * kHalves, static_cast<std::uint16_t>(base), lines[k])) continue;
      if (!list_outside(weights + k * kHalves, base, s * kStepColumns + 2 * k, tail)) return false;
    }
    std::uint16_t step[3 * kHalves];
    for (std::int64_t i = 0; i < kHalves; ++i) {
      step[i] = static_cast<std::uint16_t>(lines[0].bytes[i] | lines[1].bytes[i] << 8U);
      step[kHalves + i] = static_cast<std::uint16_t>(lines[2].bytes[i] | lines[3].bytes[i] << 8U);
      step[2 * kHalves + i] = static_cast<std::uint16_t>(lines[0].nibble[i] | lines[1].nibble[i] << 4U |
                                                         lines[2].nibble[i] << 8U | lines[3].nibble[i] << 12U);
    }
    __builtin_memcpy(out, step, sizeof step);
    out += sizeof step;
  }
  __builtin_memcpy(out, &tail, sizeof tail);
  return true;
}

}  // namespace moracle::cpu
