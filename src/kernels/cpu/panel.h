// The panel layout that all CPU kernels share, and the table of micro-kernels that one instruction set provides.
//
// A weight matrix [rows, cols] is stored as panels of 32 output rows. One 32-bit lane belongs to one row, so a vector
// register holds the same columns of 8 or 16 rows, the activation is the broadcast operand, and no horizontal sum is
// ever needed. Inside a panel the columns run in order, with scales inline, so a thread reads one sequential stream:
//
//   q4      group { steps, 32 scales, 32 zero points (u8, if any) }; step: 32 lanes x u32
//           lane: low half nibble p = column 2p, high half nibble p = column 2p + 1, so that a 16-bit table permute of
//           the word shifted by 4p yields the bf16 pair (2p, 2p + 1) that VDPBF16PS multiplies
//   e2m1    as q4, without zero points
//   q8      the same; step: 2 x { 32 lanes x u32 }, a byte a code in column order, stored as two's complement
//   e4m3    as q8, bytes in the order 0, 2, 1, 3: the columns of a bf16 pair meet after one 16-bit shift
//   bf16    step: 4 x { 32 lanes x 2 bf16 }
//   bf16_compact  the same numbers in 12 bits: step: 2 x { low bytes of 4 columns: for every 4 rows, 4 x columns 0 and
//           1, then 4 x columns 2 and 3 }, { codes of the high bytes, in the same order: low nibbles of the first 4
//           columns, high ones of the others }; behind the last step a CompactTail
//   f16     step: 4 x { 32 lanes x 2 f16 }
//   f32     step: 8 x { 32 lanes x f32 }
//
// A step is 8 columns of 32 rows, whatever the code; groups and the last step are padded with codes that the zero
// padding of the activations makes harmless.
//
// This header is included by the per-ISA files: plain structs only, no inline function that a linker could pick from
// a file compiled for an instruction set the CPU lacks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moracle::cpu {

enum class PanelCode : std::uint8_t { q4, e2m1, q8, e4m3, bf16, bf16_compact, f16, f32 };
enum class PanelScale : std::uint8_t { f16, bf16, f32, e4m3, e8m0 };
// What a prepared activation row holds. `i8`: two's complement codes, four columns a 32-bit lane, in the order in which
// the code's bytes meet them (EncodeArgs). `i16`: two's complement codes, two columns a lane, likewise. `i16_planes`:
// such codes as 256 times one signed byte plus another, the high bytes in the order of `i8` and behind a multiple of 64
// of them the low ones.
enum class InputForm : std::uint8_t { f32, bf16, i8, i16, i16_planes };

constexpr std::int64_t kPanelRows = 32;
constexpr std::int64_t kStepColumns = 8;
constexpr std::int64_t kMaxTile = 6;
constexpr std::int64_t kMaxRun = 64;      // tokens of one call at most
constexpr std::int64_t kMaxPanels = 4;    // of one call
constexpr std::int64_t kAhead = 4;        // places of PanelArgs::ahead
constexpr int kNextBits = 8;              // of PanelArgs::next_share behind the point
constexpr std::int64_t kDistance = 8192;  // bytes ahead of the multiply-adds at which a panel is prefetched
constexpr std::int64_t kShortGroup = 32;
constexpr std::int64_t kWideTiles = 3;  // tiles of 1 .. 3 tokens may take several panels at once

// Code c of bf16_compact stands for the high byte kCompactPair + c % 8, a pair of neighbouring exponents, or 0 where
// c % 8 is 7; bit 3 is the sign. The panel's factor, a power of four, puts the numbers back in their place.
constexpr int kCompactPair = 57;
struct CompactHighBytes {
  alignas(16) std::uint8_t of[16];
};
consteval CompactHighBytes compact_high_bytes() {
  CompactHighBytes bytes{};
  for (int code = 0; code < 16; ++code) {
    bytes.of[code] = static_cast<std::uint8_t>((code % 8 == 7 ? 0 : kCompactPair + code % 8) | code / 8 << 7);
  }
  return bytes;
}
constexpr std::uint32_t kMostOutside = 127;
struct CompactTail {
  float factor;
  std::uint32_t count;
  struct Outside {  // a weight whose exponent no code stands for; in its place is a zero
    std::uint32_t column;
    std::uint16_t row;     // of the panel
    std::uint16_t weight;  // bf16, as published
  };
  Outside outside[kMostOutside];
};

constexpr int kMostWord = 32512;  // magnitude of activations in 16 bits

// How scales of activations enter. `of_token`: one a token, at the end. `of_group`: one a group of the weight, which
// multiplies the group's sum. `running`: one for several groups; the total is kept in units of the scale in force, so
// that a group costs no multiplication.
enum class InputScaling : std::uint8_t { of_token, of_group, running };
constexpr std::size_t kInputScalings = 3;

// One call: `tokens` rows of activations against one panel, or against several that the kernel's name fixes. Kernels of
// a tile know their size and do not read it.
struct PanelArgs {
  std::int64_t tokens;
  const void* const* x;     // [tokens] activation rows in the kernel's input form, zero-padded to whole cache lines
  const void* const* sums;  // [tokens][groups]: sum of the row's activations, f32 or, for integer codes, i32, where
                            // zero points are stored; else that sum times -CodeKernels::offset, modulo 2^32. With
                            // block_columns: sums for zero points, if any, then a pair for every block (EncodeArgs)
  // Quantized activations, by InputScaling. `of_group`: the scales of x's codes, [tokens][groups of the weight].
  // `running`: [tokens][groups / scale_groups, rounded up], what the sums so far are multiplied by before a group with
  // another scale joins them, the scale before over its own; the last scale is in token_scale.
  const float* const* input_scales;
  std::int64_t scale_groups;  // groups of the weight that share a scale of `running`
  const std::byte* const* panels;
  std::int64_t groups;      // 1 for dense codes
  std::int64_t steps;       // of every group but the last
  std::int64_t last_steps;  // of the last group
  PanelScale scale;
  bool zeros;                // zero points are stored
  bool scaled;               // InputScaling::of_group
  const float* panel_scale;  // [panels]: second-level scale of the weight; 1 if none
  const float* token_scale;  // [tokens]: the token's own scale; 1 if none
  // Four places whose lines are asked for while this panel is worked on, an equal share of each: the panels that come
  // next, as several streams from memory. Null: only the panel itself, a little ahead.
  const std::byte* const* ahead;
  // Otherwise the panel itself is prefetched kDistance bytes ahead; lines past it, from `end` on, `gap` bytes further:
  // where the thread goes on to read.
  const std::byte* end;
  std::int64_t gap;
  bool again;  // an earlier call has read these panels, so they need not be asked for
  // What such a call asks for instead: from here on, next_share / 2^kNextBits as many bytes as its panel has. Null:
  // nothing.
  const std::byte* next;
  std::int64_t next_share;
  float* const* out;  // [panels][tokens, out_stride], 32 values a row
  std::int64_t out_stride;
};
using PanelMultiply = void (*)(const PanelArgs&);

// Gated activations that are vectorized; the parameters are those of ActivationSpec.
enum class PanelActivation : std::uint8_t { silu, gelu_tanh, swigluoai, swiglustep };
struct ActivationArgs {
  PanelActivation fn;
  float alpha;
  float beta;
  float limit;
  const float* gate;       // [rows, kPanelRows]
  const float* up;         // likewise
  const float* gate_bias;  // [kPanelRows], added first; null: none, for up neither
  const float* up_bias;
  float* out;  // [rows], each kPanelRows values, out_stride apart
  std::int64_t rows;
  std::int64_t out_stride;
};

// The kernels of one code and input form; all null where an instruction set has none.
struct CodeKernels {
  struct Tiles {
    PanelMultiply one[kMaxTile];     // [tokens - 1], one panel
    PanelMultiply wide[kWideTiles];  // [tokens - 1], wide_panels[tokens - 1] panels; null: none
  };
  Tiles tiles[kInputScalings][2];  // [InputScaling][has zero points]; null where an instruction set has no use for it
  std::int64_t tile_tokens;        // of the largest tile, up to kMaxTile
  // Any number of tokens from `run_from` on, one panel, against weights that are decoded once for all of them.
  PanelMultiply run;
  std::int64_t run_from;
  std::int64_t short_run_from;  // the same where a group has kShortGroup columns or less; 0: as run_from
  std::int32_t offset;          // added to the codes where kernels take them unsigned; 0: they take them signed
  std::int64_t block_columns;   // of a group, whose products are summed up in 16 bits; 0: sums have 32
};

// Groups of a row that follow each other, to integer codes round(x / scale).
struct EncodeArgs {
  const float* x;  // [all columns of the groups]
  std::int64_t groups;
  std::int64_t group_columns;  // of every group but the last: whole steps of 8
  std::int64_t last_columns;   // codes behind them are zero, up to a whole step
  float scale;
  float most;  // of a code's magnitude: 127, or 32512 in 16 bits
  // Codes of 8 bits: a step's columns come as 0, 4, 1, 5, 2, 6, 3, 7 where the weight has nibbles, as its lanes' bytes
  // hold them, else in order. Codes of 16 bits: in order for nibbles, else 0, 2, 1, 3 of each four.
  bool nibbles;
  std::int32_t sum_factor;
  std::byte* out;
  std::int32_t* sums;  // [groups], of the codes, times sum_factor, modulo 2^32; null: none
  // Null, or for every pair_columns of a group's nibbles the sums of the even columns' codes (low half) and of the odd
  // ones', times pair_factor, modulo 2^16: of what the halves of a lane are multiplied by.
  std::uint32_t* pairs;
  std::int64_t pair_columns;
  std::int32_t pair_factor;
  std::int64_t plane;  // of i16_planes: bytes from a code's high byte to its low one
};

// Values to the nearest numbers of a small float format, ties to even, magnitudes above `most` to `most`. No NaN.
struct RoundArgs {
  float* values;  // [count]; each is divided or multiplied by `factor` first
  std::int64_t count;
  float factor;
  bool divide;
  int mantissa;      // bits
  int min_exponent;  // of the smallest normal number
  float most;
};

// Everything one instruction set provides.
struct PanelOps {
  CodeKernels q4, q8, e2m1, e4m3, bf16, f16, f32;
  CodeKernels bf16_compact;                       // of one form with bf16; null: matrices stay in bf16
  CodeKernels q4_i8, q8_i8, e2m1_i8;              // integer activation codes
  CodeKernels q4_i16, q8_i16, e2m1_i16;           // the same in 16 bits
  CodeKernels q4_planes, q8_planes, e2m1_planes;  // 16 bits in planes
  std::int64_t wide_panels[kWideTiles];
  InputForm quantized_input;  // of q4 and q8 where activations have 16 bits
  InputForm e2m1_input;       // of e2m1, likewise
  InputForm coded_input;      // of e4m3, and where activations are quantized to what no integer kernel takes
  InputForm bf16_input;       // of bf16 weights; f16 and f32 weights always take f32
  // Kernels of another input form for what fewer than `few_below` tokens meet; null: none.
  const PanelOps* few;
  std::int64_t few_below;
  const PanelOps* of_head;  // multiply a head's copy in 8 bits (head_top_k.h); null: these
  // Few tokens read several panels, which lie far apart, at once: Sapphire Rapids reads half as fast again so, since
  // its prefetcher keeps about 20 lines of one stream on the way and 48 of several.
  bool interleaved;
  bool even_rows;  // runs are faster where the rows of activations lie at equal distances
  void (*to_bf16)(const float* in, std::uint16_t* out, std::int64_t count);  // round to nearest even
  float (*absolute_max)(const float* x, std::int64_t count);                 // NaN where a value is not finite
  void (*round_numbers)(const RoundArgs&);
  void (*encode8)(const EncodeArgs&);   // null without integer kernels
  void (*encode16)(const EncodeArgs&);  // likewise
  void (*encode_planes)(const EncodeArgs&);
  void (*activate)(const ActivationArgs&);
  // out[i] = sum over j of weights[j] * rows[j][i], j ascending.
  void (*weighted_sum)(const float* const* rows, const float* weights, std::int64_t count, float* out, std::int64_t n);
};

extern const PanelOps kAmxOps;
extern const PanelOps kAmxIntegerOps;  // takes 16-bit activations as integers, whatever the tokens
extern const PanelOps kAmxFastOps;     // quantizes 16-bit activations, under E2M1 those that meet few tokens' weights
extern const PanelOps kAvx512VnniOps;
extern const PanelOps kAvx512VnniPlanesOps;  // takes 16-bit activations in planes of bytes
extern const PanelOps kAvx512VnniFastOps;    // quantizes 16-bit activations
extern const PanelOps kAvx512Bf16Ops;
extern const PanelOps kAvx512Ops;
extern const PanelOps kAvx2Ops;
extern const PanelOps kAvx2FastOps;    // quantizes 16-bit activations
extern const PanelOps kAvx2NumberOps;  // of kAvx2Ops, what has no integer activations

}  // namespace moracle::cpu
