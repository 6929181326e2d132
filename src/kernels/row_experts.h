// Experts and linears of matrices that give their rows as f32, one at a time: what the reference kernel and the host
// executors of external layouts share. y = sum over k of value(r, k) * x[k], in f32, sixteen partial sums added
// pairwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/kernel.h"

namespace moracle {

class RowMatrix {
 public:
  virtual ~RowMatrix() = default;
  // Row `r` with all scales applied, out[cols].
  virtual void row(std::int64_t r, float* out) const = 0;
  [[nodiscard]] virtual float bias(std::int64_t r) const = 0;
  [[nodiscard]] virtual std::size_t bytes() const = 0;

  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t cols() const { return cols_; }
  // The input as this matrix sees it: quantized and dequantized where the scheme says so. `scratch` holds cols f32.
  [[nodiscard]] const float* input(const float* x, float* scratch) const;

 protected:
  explicit RowMatrix(const CanonicalLinear& linear);

 private:
  std::int64_t rows_;
  std::int64_t cols_;
  std::optional<QuantKey> activation_;
  std::optional<float> input_scale_;
};

struct RowExpert {
  std::unique_ptr<const RowMatrix> gate, up, down;
  std::span<const std::byte> bytes{};  // of all three; empty where they do not lie in one piece
};

[[nodiscard]] std::unique_ptr<PackedExperts> make_row_experts(std::vector<RowExpert> experts,
                                                              const ActivationSpec& activation);
[[nodiscard]] std::unique_ptr<PackedLinear> make_row_linear(std::unique_ptr<const RowMatrix> matrix);

}  // namespace moracle
