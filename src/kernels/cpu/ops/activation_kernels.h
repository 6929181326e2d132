// The loops around matrix products, by instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/target.h"
#include "scheme/glu.h"

namespace moracle::cpu {

// An activation of the kinds that cards name (kPanelActivations).
struct ActivationArgs {
  ActivationSpec spec{};
  const float* gate = nullptr;       // [rows, 32]
  const float* up = nullptr;         // ungated: gate, and nothing of it counts
  const float* gate_bias = nullptr;  // [32], or null
  const float* up_bias = nullptr;
  float* out = nullptr;  // [rows], each kPanelRows values, out_stride apart
  std::int64_t rows = 0;
  std::int64_t out_stride = 0;
};

// Groups of a row that follow each other, to integer codes round(x / scale).
struct EncodeArgs {
  const float* x;  // [all columns of the groups]
  std::int64_t groups;
  std::int64_t group_columns;  // of every group but the last: whole steps of 8
  std::int64_t last_columns;   // codes behind them are zero, up to a whole step
  float scale;
  float most;  // of a code's magnitude: 127, or kMaxWord in 16 bits
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
  std::int64_t plane;  // of split_i16: bytes from a code's high byte to its low one
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

struct ActivationKernels {
  float (*absolute_max)(const float* x, std::int64_t count);  // NaN where a value is not finite
  void (*round_numbers)(const RoundArgs&);
  void (*encode8)(const EncodeArgs&);
  void (*encode16)(const EncodeArgs&);                                       // null where no kernel takes i16
  void (*encode_split)(const EncodeArgs&);                                   // likewise, of split_i16
  void (*to_bf16)(const float* in, std::uint16_t* out, std::int64_t count);  // nearest even; null likewise
  void (*activate)(const ActivationArgs&);
  // out[i] = sum over j of weights[j] * rows[j][i], j ascending.
  void (*weighted_sum)(const float* const* rows, const float* weights, std::int64_t count, float* out, std::int64_t n);
};

#if defined(__x86_64__)
extern const ActivationKernels kAvx2Activations;
extern const ActivationKernels kAvx512Activations;
extern const ActivationKernels kAvx512Bf16Activations;  // the same with to_bf16
void to_bf16_avx512bf16(const float* in, std::uint16_t* out, std::int64_t count);
#elif defined(__aarch64__)
extern const ActivationKernels kNeonActivations;
[[nodiscard]] const VectorOps& neon_vector_ops();
#endif

}  // namespace moracle::cpu
