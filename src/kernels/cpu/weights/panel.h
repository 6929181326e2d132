// The panel layout that all CPU kernels share.
//
// Panels of 32 output rows (docs/kernels-cpu.md): a 32-bit lane of a row, columns in order, scales inline.
//
//   int4    group { steps, 32 scales, 32 zero points (u8, if any) }; step: 32 lanes x u32
//           lane: low half nibble p = column 2p, high half nibble p = column 2p + 1, so that a 16-bit table permute of
//           the word shifted by 4p yields the bf16 pair (2p, 2p + 1) that VDPBF16PS multiplies
//   e2m1    as int4, without zero points
//   int8    the same; step: 2 x { 32 lanes x u32 }, a byte a code in column order, stored as two's complement
//   e4m3    as int8, bytes in the order 0, 2, 1, 3: the columns of a bf16 pair meet after one 16-bit shift
//   bf16    step: 4 x { 32 lanes x 2 bf16 }
//   bf16x12 the same numbers in 12 bits: step: 2 x { low bytes of 4 columns: for every 4 rows, 4 x columns 0 and 1,
//           then 4 x columns 2 and 3 }, { codes of the high bytes, in the same order: low nibbles of the first 4
//           columns, high ones of the others }; behind the last step a Bf16x12Tail
//   f16     step: 4 x { 32 lanes x 2 f16 }
//   f32     step: 8 x { 32 lanes x f32 }
//
// A step is 8 columns of 32 rows of every code. Codes that pad groups and the last step are multiplied by the zeros
// that pad the activations.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moracle::cpu {

enum class WeightCode : std::uint8_t { int4, e2m1, int8, e4m3, bf16, bf16x12, f16, f32 };
enum class ScaleCode : std::uint8_t { f16, bf16, f32, e4m3, e8m0 };
// What a row of activations holds for a kernel. `i8`: two's complement codes, four columns a 32-bit lane, in the order
// in which the code's bytes meet them (EncodeArgs). `i16`: two's complement codes, two columns a lane, likewise.
// `split_i16`: such codes as 256 times one signed byte plus another, the high bytes in the order of `i8` and behind a
// multiple of 64 of them the low ones.
enum class ActDtype : std::uint8_t { f32, bf16, i8, i16, split_i16 };
// How scales of activations enter. `per_token`: one a token, at the end. `per_group`: one a group of the weight, which
// multiplies the group's sum. `running`: one for several groups; the total is kept in units of the scale in force, so
// that a group costs no multiplication.
enum class ActScaling : std::uint8_t { per_token, per_group, running };

constexpr std::int64_t kPanelRows = 32;
constexpr std::int64_t kStepColumns = 8;
constexpr std::int64_t kMaxTokens = 64;         // of one call of a kernel
constexpr std::int64_t kMaxPanels = 4;          // likewise
constexpr std::int64_t kInterleavedTokens = 3;  // up to so many tokens may meet several panels at once
constexpr int kMaxWord = 32512;                 // magnitude of activations in 16 bits

constexpr std::int64_t scale_bytes(ScaleCode scale) {
  if (scale == ScaleCode::f32) return 4;
  return scale == ScaleCode::e4m3 || scale == ScaleCode::e8m0 ? 1 : 2;
}
// Of 8 columns of 32 rows, by WeightCode.
inline constexpr std::int64_t kStepBytes[] = {128, 128, 256, 256, 512, 384, 512, 1024};
constexpr std::int64_t step_bytes(WeightCode code) {
  return kStepBytes[static_cast<std::size_t>(code)];
}
constexpr bool quantized(WeightCode code) {  // has scales
  return step_bytes(code) <= 256;
}
constexpr bool has_zero_points(WeightCode code) {
  return code == WeightCode::int4 || code == WeightCode::int8;
}

// What a decoder has of its code: bytes of a step, the offset of codes under scales, the unit of the numbers that it
// decodes to.
template <WeightCode kOfCode, int kCodeOffset, int kUnitsOfOne = 1>
struct ScaledCode {
  static constexpr WeightCode kCode = kOfCode;
  static constexpr std::int64_t kBytes = step_bytes(kCode);
  static constexpr float kOffset = kCodeOffset;
  static constexpr float kUnit = 1.0F / kUnitsOfOne;
};
template <WeightCode kOfCode>
struct DenseCode {
  static constexpr WeightCode kCode = kOfCode;
  static constexpr std::int64_t kBytes = step_bytes(kCode);
  static constexpr float kUnit = 1.0F;
};

// What kernels need to know of a panel.
struct PanelShape {
  std::int64_t groups = 1;  // 1 for dense codes
  std::int64_t steps = 0;   // of every group but the last
  std::int64_t last_steps = 0;
  std::size_t panel_bytes = 0;
  ScaleCode scale = ScaleCode::f32;
  bool zeros = false;  // zero points are stored
  ActScaling scaling = ActScaling::per_token;
  std::int64_t scale_groups = 0;  // groups of the weight that share a running scale
};

// Code c of bf16x12 stands for the high byte kBf16x12Pair + c % 8, a pair of neighbouring exponents, or 0 where c % 8
// is 7; bit 3 is the sign. The panel's factor, a power of four, puts the numbers back in their place.
constexpr int kBf16x12Pair = 57;
struct ByteTable {
  alignas(16) std::uint8_t of[16];
};
consteval ByteTable bf16x12_high_bytes() {
  ByteTable bytes{};
  for (int code = 0; code < 16; ++code) {
    bytes.of[code] = static_cast<std::uint8_t>((code % 8 == 7 ? 0 : kBf16x12Pair + code % 8) | code / 8 << 7);
  }
  return bytes;
}
constexpr std::uint32_t kMaxExceptions = 127;
struct Bf16x12Tail {
  float factor;
  std::uint32_t count;
  struct Exception {  // a weight whose exponent no code stands for; in its place is a zero
    std::uint32_t column;
    std::uint16_t row;     // of the panel
    std::uint16_t weight;  // bf16, as published
  };
  Exception exceptions[kMaxExceptions];
};

}  // namespace moracle::cpu
