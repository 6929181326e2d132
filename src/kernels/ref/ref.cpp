// The reference kernel: fp32, plain, the truth the others are held against.
//
// It keeps the canonical form itself (a code a byte, f32 scales) and dequantizes one row at a time, so what it computes
// is the definition: y = sum over k of value(r, k) * x[k].
#include "kernels/ref/ref.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/first_error.h"
#include "kernels/row_experts.h"

namespace moracle::ref {

namespace {

// One matrix, owned, in canonical form.
class RefMatrix final : public RowMatrix {
 public:
  static Result<std::unique_ptr<const RowMatrix>> copy(const CanonicalLinear& linear, bool layout_only) {
    auto matrix = std::make_unique<RefMatrix>(linear);
    if (layout_only) return std::unique_ptr<const RowMatrix>(std::move(matrix));
    MORACLE_TRY(linear.weight->read(0, matrix->spec_.rows, matrix->all_));
    linear.weight->release();
    return std::unique_ptr<const RowMatrix>(std::move(matrix));
  }
  explicit RefMatrix(const CanonicalLinear& linear)
      : RowMatrix(linear), spec_(linear.weight->spec()), bias_(linear.bias) {}

  void row(std::int64_t r, float* out) const override {
    const auto cols = static_cast<std::size_t>(spec_.cols);
    const auto at = static_cast<std::size_t>(r) * cols;
    if (all_.codes.empty()) {
      std::copy_n(all_.values.data() + at, cols, out);
      return;
    }
    dequantize_row(spec_, all_, r, {out, cols});
  }
  [[nodiscard]] float bias(std::int64_t r) const override {
    return bias_.empty() ? 0.0F : bias_[static_cast<std::size_t>(r)];
  }
  [[nodiscard]] std::size_t bytes() const override {
    const auto values = static_cast<std::size_t>(spec_.rows * spec_.cols);
    if (!spec_.key.quantized()) return sizeof(float) * values;
    const auto scales = static_cast<std::size_t>(spec_.rows * spec_.groups);
    return values + scales * (sizeof(float) + (spec_.key.symmetric ? 0U : 1U));
  }

 private:
  MatrixSpec spec_;
  MatrixPanel all_;
  std::vector<float> bias_;
};

Result<RowExpert> copy_expert(const CanonicalExperts::Expert& from, bool layout_only) {
  RowExpert expert;
  MORACLE_ASSIGN(expert.gate, RefMatrix::copy(from.gate, layout_only));
  MORACLE_ASSIGN(expert.up, RefMatrix::copy(from.up, layout_only));
  MORACLE_ASSIGN(expert.down, RefMatrix::copy(from.down, layout_only));
  return expert;
}

}  // namespace

Result<std::unique_ptr<PackedExperts>> pack_experts(const CanonicalExperts& experts, const PackOptions& options) {
  std::vector<RowExpert> copies(experts.experts.size());
  FirstError failed;
  options.pool.parallel_for(narrow<std::int64_t>(copies.size()), [&](std::int64_t e, int) {
    if (failed.failed()) return;
    auto copy = copy_expert(experts.experts[static_cast<std::size_t>(e)], options.layout_only);
    if (!copy.ok()) {
      failed.keep(e, std::move(copy).error());
      return;
    }
    copies[static_cast<std::size_t>(e)] = std::move(copy).value();
  });
  MORACLE_TRY(failed.take());
  return make_row_experts(std::move(copies), options.activation);
}

Result<std::unique_ptr<PackedLinear>> pack_linear(const CanonicalLinear& linear, const PackOptions& options) {
  MORACLE_ASSIGN(auto matrix, RefMatrix::copy(linear, options.layout_only));
  return make_row_linear(std::move(matrix));
}

}  // namespace moracle::ref
