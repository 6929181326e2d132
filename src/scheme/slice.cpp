#include "scheme/slice.h"

#include <algorithm>
#include <numeric>
#include <type_traits>
#include <utility>

#include "base/checked.h"

namespace moracle {

namespace {

// Part of the rows and columns of a matrix.
class MatrixShare final : public MatrixSource {
 public:
  MatrixShare(std::shared_ptr<const MatrixSource> whole, MatrixSpec spec, std::int64_t first_row,
              std::int64_t first_col)
      : MatrixSource(std::move(spec)), whole_(std::move(whole)), first_row_(first_row), first_col_(first_col) {}

  [[nodiscard]] Result<> read(std::int64_t begin, std::int64_t end, MatrixPanel& out) const override {
    MORACLE_TRY(whole_->read(first_row_ + begin, first_row_ + end, out));
    keep_columns(out);
    return Ok{};
  }
  [[nodiscard]] Result<> read_scales(std::int64_t begin, std::int64_t end, MatrixPanel& out) const override {
    MORACLE_TRY(whole_->read_scales(first_row_ + begin, first_row_ + end, out));
    keep_columns(out);
    return Ok{};
  }
  [[nodiscard]] Result<> check_zeros(std::int64_t begin, std::int64_t end) const override {
    return whole_->check_zeros(first_row_ + begin, first_row_ + end);
  }

 private:
  void keep_columns(MatrixPanel& panel) const {
    const MatrixSpec& whole = whole_->spec();
    if (whole.cols == spec_.cols) return;
    // [rows, from_width] to [rows, width], of which column k was column(k).
    const auto keep = [&](auto& values, std::int64_t from_width, std::int64_t width, const auto& column) {
      if (values.empty()) return;
      std::remove_reference_t<decltype(values)> kept(narrow<std::size_t>(panel.rows * width));
      for (std::int64_t row = 0; row < panel.rows; ++row) {
        for (std::int64_t k = 0; k < width; ++k) {
          kept[narrow<std::size_t>(row * width + k)] = values[narrow<std::size_t>(row * from_width + column(k))];
        }
      }
      values.swap(kept);
    };
    const auto moved = [&](std::int64_t col) { return first_col_ + col; };
    keep(panel.codes, whole.cols, spec_.cols, moved);
    keep(panel.values, whole.cols, spec_.cols, moved);
    const auto group = [&](std::int64_t g) { return (first_col_ + g * spec_.group_cols) / whole.group_cols; };
    keep(panel.scales, whole.groups, spec_.groups, group);
    keep(panel.zeros, whole.groups, spec_.groups, group);
  }

  std::shared_ptr<const MatrixSource> whole_;
  std::int64_t first_row_;
  std::int64_t first_col_;
};

struct Cut {
  std::int64_t first_row, rows, first_col, cols;
};

CanonicalLinear share_of(const CanonicalLinear& whole, const Cut& cut) {
  CanonicalLinear share = whole;
  share.weight = std::make_shared<const MatrixShare>(
      whole.weight, spec_of_share(whole.weight->spec(), cut.rows, cut.cols), cut.first_row, cut.first_col);
  if (!whole.bias.empty()) {
    share.bias.assign(whole.bias.begin() + cut.first_row, whole.bias.begin() + cut.first_row + cut.rows);
    if (cut.first_col > 0) std::fill(share.bias.begin(), share.bias.end(), 0.0F);
  }
  return share;
}

}  // namespace

MatrixSpec spec_of_share(const MatrixSpec& whole, std::int64_t rows, std::int64_t cols) {
  MatrixSpec spec = whole;
  spec.rows = rows;
  spec.cols = cols;
  if (spec.key.quantized()) {
    const bool whole_rows = whole.group_cols >= whole.cols;
    spec.group_cols = whole_rows ? cols : std::gcd(whole.group_cols, cols);
    spec.groups = ceil_div(cols, spec.group_cols);
  }
  return spec;
}

CanonicalExperts slice_experts(const CanonicalExperts& whole, const ExpertsSlice& slice) {
  CanonicalExperts share = whole;
  share.experts.clear();
  share.intermediate = slice.width;
  const bool cut = slice.width != whole.intermediate;
  for (const std::int64_t number : slice.experts) {
    const CanonicalExperts::Expert& expert = whole.experts[narrow<std::size_t>(number)];
    if (!cut) {
      share.experts.push_back(expert);
      continue;
    }
    const Cut rows{slice.begin, slice.width, 0, whole.hidden};
    const Cut columns{0, whole.hidden, slice.begin, slice.width};
    share.experts.push_back({.gate = share_of(expert.gate, rows),
                             .up = expert.gated() ? share_of(expert.up, rows) : CanonicalLinear{},
                             .down = share_of(expert.down, columns)});
  }
  return share;
}

}  // namespace moracle
