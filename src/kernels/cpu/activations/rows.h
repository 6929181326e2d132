// Rows of activations as kernels take them.
#pragma once

#include <optional>
#include <span>

#include "base/memory.h"
#include "kernels/cpu/ops/activation_kernels.h"
#include "kernels/cpu/weights/format.h"

namespace moracle::cpu {

// Where the parts of one activation row go.
struct ActivationRow {
  std::byte* x;  // padded_cols() values in the format's input form, then zeros to the end of the stride
  float* sums;   // [sum_count()], where the format needs sums; of integer codes: int32 in the same place
  // Quantized activations, by the format's scaling: one; one a group; or the factors from each running scale to
  // the next, the first of which meets totals of zero and is finite, and behind them the last scale.
  float* scales;
};

// Prepares one activation row: reordered, zero-padded, quantized where the scheme says so, rounded to bf16 where the
// kernel wants that, with the sum of each group where zero points are stored. `extras`: of the matrix that it meets;
// `scratch` holds padded_cols() f32.
void make_activation_row(const ActivationKernels& ops, const PanelFormat& format, const MatrixExtras& extras,
                         const float* x, float* scratch, const ActivationRow& row);

// Storage for the rows of one matrix.
struct ActivationRows {
  std::span<std::byte> x;
  std::span<float> sums;
  std::span<float> scales;

  static ActivationRows take(const PanelFormat& format, std::size_t rows, BumpArena& arena);
  [[nodiscard]] ActivationRow row(const PanelFormat& format, std::int64_t index) const;
};

// Rows of one call of a kernel. Without initializers: it stands on the stack, and to clear arrays for 64 tokens took a
// fifth of a panel's time at one.
struct TokenBlock {
  std::int64_t count = 0;
  const void* x[kMaxTokens];
  const void* sums[kMaxTokens];
  const float* scales[kMaxTokens];
  float token_scale[kMaxTokens];

  void add(const PanelFormat& format, const ActivationRow& row);
  // A call without panels; it refers to this.
  [[nodiscard]] GemmArgs call(const PanelFormat& format) const;
};

}  // namespace moracle::cpu
