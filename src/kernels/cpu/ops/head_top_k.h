// The k largest outputs of a head for each row of a batch, from those panels of the head that upper bounds select.
//
// Beside the head W stands a copy S in 8 bits with one scale a row. The kernels of int8 weights multiply S first, and
// quantize the activations x to x~:
//
//   |W_r x - S_r x~| <= |W_r - S_r| |x| + |S_r| |x - x~|        (Cauchy-Schwarz, Euclidean norms)
//
// This and a slack for rounding bound every output from above. W multiplies the panels whose bound reaches the k-th
// largest exact output. Of normally distributed weights the bound is 0.4 standard deviations of an output wide.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/generic/function_ref.h"
#include "kernels/cpu/weights/panel.h"
#include "kernels/kernel.h"

namespace moracle::cpu {

struct RowNorms {
  float error = 0.0F;  // at least |W_r - S_r|; infinite: unknown
  float norm = 0.0F;   // at least |S_r|
};
constexpr std::int64_t kMaxHeadCols = std::int64_t{1} << 16;  // norms are sums in f32

// S as a source of rows, which also fills norms [rows] as they are read. Source and norms outlive it.
[[nodiscard]] std::shared_ptr<const MatrixSource> int8_copy(const MatrixSource& source, std::span<RowNorms> norms);

struct HeadTopK {
  // Writes the head's outputs of one panel for all tokens of the query to y[tokens, rows]. Called by several threads.
  using GemmPanel = FunctionRef<void(std::int64_t panel, float* y)>;

  std::unique_ptr<PackedLinear> copy{};  // S
  ActDtype copy_input = ActDtype::f32;   // what S is packed for
  ActDtype head_input = ActDtype::f32;   // what the head itself takes
  std::int64_t cols = 0;
  std::vector<RowNorms> norms{};

  [[nodiscard]] std::size_t bytes() const { return copy->bytes() + norms.size() * sizeof(RowNorms); }
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t tokens, int threads) const;
  // As PackedLinear::top_k(). `memory`: workspace_bytes().
  [[nodiscard]] bool run(Stream& stream, std::span<std::byte> memory, const TopKQuery& query, GemmPanel gemm,
                         std::span<RankedOutput> out) const;
};

}  // namespace moracle::cpu
