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

enum class PanelCode : std::uint8_t { q4, e2m1, q8, e4m3, bf16, f16, f32 };
enum class PanelScale : std::uint8_t { f16, bf16, f32, e4m3, e8m0 };
enum class InputForm : std::uint8_t { f32, bf16 };

constexpr std::int64_t kPanelRows = 32;
constexpr std::int64_t kStepColumns = 8;
constexpr std::int64_t kMaxTile = 6;
constexpr std::int64_t kMaxRun = 48;  // tokens of one call at most

// One call: `tokens` rows of activations against one panel. Kernels of a tile know their size and do not read it.
struct PanelArgs {
  std::int64_t tokens;
  const void* const* x;      // [tokens] activation rows in the kernel's input form, zero-padded to whole steps
  const float* const* sums;  // [tokens][groups]: sum of the row's activations; read only where zero points are stored
  // Quantized activations: x holds their codes as numbers, and these the scales that belong to them, [tokens][groups of
  // the weight]. Read only by the kernels for such activations.
  const float* const* input_scales;
  const std::byte* panel;
  std::int64_t groups;      // 1 for dense codes
  std::int64_t steps;       // of every group but the last
  std::int64_t last_steps;  // of the last group
  PanelScale scale;
  bool zeros;                 // zero points are stored
  bool scaled;                // input_scales are there
  const float* global_scale;  // [tokens]: second-level scale of the weight times the token's own scale; 1 if none
  float* out;                 // [tokens, out_stride], 32 values a row
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
  const float* gate;
  const float* up;
  float* out;
  std::int64_t count;
};

// Everything one instruction set provides.
struct PanelOps {
  // [quantized activations with a scale a group][has zero points][tile - 1]
  PanelMultiply q4[2][2][kMaxTile];
  PanelMultiply q8[2][2][kMaxTile];
  PanelMultiply e2m1[2][kMaxTile];  // [quantized activations with a scale a group][tile - 1]
  PanelMultiply e4m3[2][kMaxTile];
  PanelMultiply bf16[kMaxTile];
  PanelMultiply f16[kMaxTile];
  PanelMultiply f32[kMaxTile];
  // Any number of tokens from `run_from` on, against weights that are decoded once for all of them.
  PanelMultiply q4_run, q8_run, e2m1_run, e4m3_run;
  std::int64_t run_from;      // at least 3
  InputForm quantized_input;  // of q4, q8, e2m1 and e4m3
  InputForm bf16_input;       // of bf16 weights; f16 and f32 weights always take f32
  void (*to_bf16)(const float* in, std::uint16_t* out, std::int64_t count);  // round to nearest even
  void (*activate)(const ActivationArgs&);
  // out[i] = sum over j of weights[j] * rows[j][i], j ascending.
  void (*weighted_sum)(const float* const* rows, const float* weights, std::int64_t count, float* out, std::int64_t n);
};

extern const PanelOps kAvx512Bf16Ops;
extern const PanelOps kAvx512Ops;
extern const PanelOps kAvx2Ops;

}  // namespace moracle::cpu
