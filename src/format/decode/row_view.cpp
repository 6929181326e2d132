#include "format/decode/row_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/checked.h"

namespace moracle {
namespace {

MatrixSpec spec_of(const MatrixSource& whole, std::int64_t rows) {
  MatrixSpec spec = whole.spec();
  spec.rows = rows;
  return spec;
}

// Moves every `stride`-th row of [.., width] to the front.
template <class T>
void keep_rows(std::vector<T>& values, std::int64_t rows, std::int64_t stride) {
  if (values.empty() || rows == 0) return;
  const std::int64_t stored = (rows - 1) * stride + 1;
  const auto width = narrow<std::ptrdiff_t>(narrow<std::int64_t>(values.size()) / stored);
  for (std::int64_t r = 1; r < rows; ++r)
    std::copy_n(values.begin() + r * stride * width, width, values.begin() + r * width);
  values.resize(narrow<std::size_t>(rows * width));
}

class RowView final : public MatrixSource {
 public:
  RowView(std::shared_ptr<const MatrixSource> whole, std::int64_t begin, std::int64_t stride, std::int64_t rows)
      : MatrixSource(spec_of(*whole, rows)), whole_(std::move(whole)), begin_(begin), stride_(stride) {}

  Result<> read(std::int64_t begin, std::int64_t end, MatrixPanel& out) const override {
    return select(begin, end, out,
                  [&](std::int64_t first, std::int64_t last) { return whole_->read(first, last, out); });
  }

  Result<> read_scales(std::int64_t begin, std::int64_t end, MatrixPanel& out) const override {
    return select(begin, end, out,
                  [&](std::int64_t first, std::int64_t last) { return whole_->read_scales(first, last, out); });
  }

  std::optional<RawCodes> raw_codes() const override { return own_rows(whole_->raw_codes()); }
  std::optional<RawScales> raw_scales() const override { return own_rows(whole_->raw_scales()); }

  // Of all rows from the first to the last.
  Result<> check_zeros(std::int64_t begin, std::int64_t end) const override {
    return begin == end ? Result<>(Ok{})
                        : whole_->check_zeros(begin_ + begin * stride_, begin_ + (end - 1) * stride_ + 1);
  }

  void fetch(std::span<const std::byte> words, std::byte* to) const override { whole_->fetch(words, to); }

  void release() const override { whole_->release(); }

  void list_stored(std::vector<std::span<const std::byte>>& parts) const override { whole_->list_stored(parts); }

  std::shared_ptr<const MatrixSource> relocated(const MoveBytes& moved) const override {
    auto copy = std::make_shared<RowView>(*this);
    copy->whole_ = whole_->relocated(moved);
    return copy->whole_ == nullptr ? nullptr : copy;
  }

 private:
  template <class Stored>
  [[nodiscard]] std::optional<Stored> own_rows(std::optional<Stored> stored) const {
    if (!stored) return stored;
    stored->first += begin_ * stored->row_bytes;
    stored->row_bytes *= stride_;
    return stored;
  }

  // Reads all rows from the first to the last, and keeps those of this view.
  template <class Read>
  Result<> select(std::int64_t begin, std::int64_t end, MatrixPanel& out, Read read) const {
    if (begin < 0 || begin > end || end > spec_.rows)
      return Error{.code = "panel.range",
                   .where = spec_.name,
                   .wanted = fmt::format("rows within [0, {})", spec_.rows),
                   .found = fmt::format("[{}, {})", begin, end)};
    const std::int64_t rows = end - begin;
    const std::int64_t first = begin_ + begin * stride_;
    MORACLE_TRY(read(first, rows == 0 ? first : first + (rows - 1) * stride_ + 1));
    out.rows = rows;
    keep_rows(out.codes, rows, stride_);
    keep_rows(out.scales, rows, stride_);
    keep_rows(out.zeros, rows, stride_);
    keep_rows(out.values, rows, stride_);
    return Ok{};
  }

  std::shared_ptr<const MatrixSource> whole_;
  std::int64_t begin_;
  std::int64_t stride_;
};

}  // namespace

StoredLinear select_rows(const StoredLinear& whole, std::int64_t begin, std::int64_t stride, std::int64_t rows) {
  StoredLinear part = whole;
  part.spec.rows = rows;
  if (part.bias) {
    part.bias->begin += begin * part.bias->stride;
    part.bias->stride *= stride;
  }
  part.open = [open = whole.open, begin, stride, stored = whole.spec.rows](MatrixSpec spec) -> Result<CanonicalLinear> {
    const std::int64_t wanted = std::exchange(spec.rows, stored);
    MORACLE_ASSIGN(CanonicalLinear linear, open(std::move(spec)));
    linear.weight = std::make_shared<RowView>(linear.weight, begin, stride, wanted);
    return linear;
  };
  return part;
}

}  // namespace moracle
