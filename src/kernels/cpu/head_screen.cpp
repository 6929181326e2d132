#include "kernels/cpu/head_screen.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/checked.h"

namespace moracle::cpu {

namespace {

constexpr float kMostCode = 127.0F;
constexpr float kMostFineCode = 32767.0F;
constexpr int kFinePartOffset = kScreenOffset * kFineSteps + kFineOffset;

// Above these, a partial sum of the exact kernel might leave f32, which run() would tell.
constexpr float kMostActivation = 1e15F;
constexpr float kMostNorm = 1e15F;

// |computed - true| / (|W_r| |x|) of a product of `cols` columns: each of up to `cols` multiplications and as many
// additions, in any order, rounds by 2^-24 at most, and so do the screen's scales and sums. Inputs of bf16 are rounded
// by 2^-9 before. A half more, for terms of second order.
double rounding_of(std::int64_t cols, InputForm input) {
  const double sums = 3 * static_cast<double>(cols + 64) * 0x1p-24;
  return sums + (input == InputForm::bf16 ? 0x1.02p-9 : 0.0);
}

// Rows of one read, so that they stay in the second-level cache.
constexpr std::int64_t kReadRows = 16;

// One group of x as codes round(x / scale); returns the sum of the codes, and adds the square of what they leave.
template <class Code>
std::int32_t encode(std::span<const float> x, float scale, float most, Code* codes, double& left) {
  const float inverse = scale > 0.0F ? 1.0F / scale : 0.0F;
  std::int32_t sum = 0;
  for (std::size_t k = 0; k < x.size(); ++k) {
    // Of magnitude 2^15 at most; adding and subtracting 1.5 x 2^23 rounds it to an integer.
    constexpr float kInteger = 0x1.8p23F;
    const float code = std::clamp(x[k] * inverse + kInteger - kInteger, -most, most);
    const double difference = static_cast<double>(x[k]) - static_cast<double>(code) * static_cast<double>(scale);
    left += difference * difference;
    codes[k] = static_cast<Code>(code);
    sum += static_cast<std::int32_t>(code);
  }
  return sum;
}

}  // namespace

HeadScreen::HeadScreen(std::int64_t rows, std::int64_t cols)
    : rows_(rows),
      cols_(cols),
      blocks_(ceil_div(cols, kScreenBlock)),
      fine_at_(static_cast<std::size_t>(ceil_div(rows * blocks_ * kScreenRowBytes, std::int64_t{64}) * 64)),
      norms_at_(fine_at_ + static_cast<std::size_t>(rows * blocks_ * kScreenNibbles)) {}

Result<> HeadScreen::pack(const MatrixSource& source, std::int64_t begin, std::int64_t end, std::span<std::byte> memory,
                          Scratch& scratch) const {
  const bool whole = cols_ % kScreenBlock == 0;
  if (!whole) scratch.row.assign(static_cast<std::size_t>(blocks_ * kScreenBlock), 0.0F);
  scratch.groups.resize(static_cast<std::size_t>(blocks_ * kScreenGroups));
  auto* const norms = reinterpret_cast<ScreenNorms*>(memory.data() + norms_at_);
  for (std::int64_t first = begin; first < end; first += kReadRows) {
    MORACLE_TRY(source.read(first, std::min(first + kReadRows, end), scratch.panel));
    for (std::int64_t r = 0; r < scratch.panel.rows; ++r) {
      const float* weights = scratch.panel.values.data() + r * cols_;
      if (!whole) {
        std::copy_n(weights, cols_, scratch.row.data());
        weights = scratch.row.data();
      }
      const std::int64_t row = first + r;
      const std::int64_t fine = row * blocks_ * kScreenNibbles;
      norms[row] = pack_screen_row({.weights = weights,
                                    .blocks = blocks_,
                                    .row = memory.data() + row * blocks_ * kScreenRowBytes,
                                    .fine = memory.data() + fine_at_ + static_cast<std::size_t>(fine),
                                    .scratch = scratch.groups.data()});
    }
  }
  return Ok{};
}

std::size_t HeadScreen::query_bytes() const {
  const auto columns = static_cast<std::size_t>(blocks_ * kScreenBlock);
  const auto groups = static_cast<std::size_t>(blocks_ * kScreenGroups);
  return BumpArena::cost<std::int8_t>(columns) + BumpArena::cost<std::int16_t>(columns) +
         3 * BumpArena::cost<float>(groups) + BumpArena::cost<std::int32_t>(groups);
}

std::optional<HeadScreen::Query> HeadScreen::prepare(const float* x, InputForm input, BumpArena& arena) const {
  const auto columns = static_cast<std::size_t>(blocks_ * kScreenBlock);
  const auto groups = static_cast<std::size_t>(blocks_ * kScreenGroups);
  const auto codes = arena.take<std::int8_t>(columns);
  const auto fine = arena.take<std::int16_t>(columns);
  const auto scales = arena.take<float>(groups);
  const auto start = arena.take<float>(groups);
  const auto fine_scales = arena.take<float>(groups);
  const auto fine_start = arena.take<std::int32_t>(groups);
  std::fill(codes.begin(), codes.end(), std::int8_t{0});
  std::fill(fine.begin(), fine.end(), std::int16_t{0});
  double length = 0;
  double off = 0;
  double fine_off = 0;
  for (std::size_t g = 0; g < groups; ++g) {
    const std::size_t first = g * kScreenGroup;
    const auto cols = static_cast<std::size_t>(cols_);
    const std::span<const float> group(x + std::min(first, cols), x + std::min(first + kScreenGroup, cols));
    float most = 0.0F;
    for (const float value : group) {
      if (!(std::fabs(value) <= kMostActivation)) return std::nullopt;
      most = std::max(most, std::fabs(value));
      length += static_cast<double>(value) * static_cast<double>(value);
    }
    // Where it is no normal number, codes are zero, and what they leave is the whole.
    const float scale = most / kMostCode >= 0x1p-120F ? most / kMostCode : 0.0F;
    const float fine_scale = scale > 0.0F ? most / kMostFineCode : 0.0F;
    scales[g] = scale;
    start[g] = static_cast<float>(-kScreenOffset * encode(group, scale, kMostCode, codes.data() + first, off));
    fine_scales[g] = fine_scale;
    fine_start[g] = -kFinePartOffset * encode(group, fine_scale, kMostFineCode, fine.data() + first, fine_off);
  }
  return Query{.codes = codes.data(),
               .scales = scales.data(),
               .start = start.data(),
               .fine = fine.data(),
               .fine_scales = fine_scales.data(),
               .fine_start = fine_start.data(),
               .length = std::sqrt(length),
               .off = std::sqrt(off),
               .fine_off = std::sqrt(fine_off),
               .rounding = rounding_of(cols_, input),
               .lost = static_cast<double>(cols_) * 0x1p-100};
}

namespace {

// near + error * per_error + norm * per_norm + rest, a bound; NaN where the row's own numbers are too large.
struct Margin {
  float per_error;
  float per_norm;
  float rest;

  // `off`: what x's codes leave; `length` and so on as in Query.
  Margin(const HeadScreen::Query& query, double off)
      : per_error(static_cast<float>((query.length + slack(query)) * kUp)),
        per_norm(static_cast<float>((off + slack(query)) * kUp)),
        rest(static_cast<float>(query.lost * (1 + query.length))) {}

  [[nodiscard]] float above(float near, float error, float norm) const {
    const float bound = near + (error * per_error + norm * per_norm + rest);
    return norm + error <= kMostNorm ? bound : NAN;
  }

 private:
  static constexpr double kUp = 1.00001;  // for the roundings of the bound itself
  static double slack(const HeadScreen::Query& query) { return query.rounding * (query.length + query.off); }
};

}  // namespace

void HeadScreen::bound(const PanelOps& ops, const Query& query, std::int64_t begin, std::int64_t end,
                       float* bounds) const {
  ops.screen_rows({.x = query.codes,
                   .scales = query.scales,
                   .start = query.start,
                   .blocks = blocks_,
                   .rows = row_at(begin),
                   .count = end - begin,
                   .out = bounds + begin});
  const Margin margin(query, query.off);
  for (std::int64_t row = begin; row < end; ++row) {
    const ScreenNorms& of_row = norms()[row];
    bounds[row] = margin.above(bounds[row] * of_row.unit, of_row.error, of_row.norm);
  }
}

float HeadScreen::bound_finely(const Query& query, std::int64_t row) const {
  const float near = screen_row_finely({.x = query.fine,
                                        .scales = query.fine_scales,
                                        .start = query.fine_start,
                                        .blocks = blocks_,
                                        .row = row_at(row),
                                        .fine = fine_at(row)});
  const ScreenNorms& of_row = norms()[row];
  // |S_r + F_r| is not above |S_r| + |W_r - S_r| + |W_r - S_r - F_r|.
  return Margin(query, query.fine_off)
      .above(near * (of_row.unit / kFineSteps), of_row.left, of_row.norm + of_row.error + of_row.left);
}

void HeadScreen::ask_for(std::int64_t row) const {
  for (std::int64_t line = 0; line < blocks_ * kScreenRowBytes; line += 64) __builtin_prefetch(row_at(row) + line);
  for (std::int64_t line = 0; line < blocks_ * kScreenNibbles; line += 64) __builtin_prefetch(fine_at(row) + line);
}

void HeadScreen::narrow_bounds(const Query& query, std::int64_t begin, std::int64_t end, float known,
                               float* bounds) const {
  // Rows lie far apart: the next ones are on their way while one is worked on.
  constexpr std::size_t kAsked = 2;
  std::array<std::int64_t, kMostRows + kAsked> rows;
  std::size_t count = 0;
  for (std::int64_t row = begin; row < end; ++row) {
    rows[count] = row;
    if (bounds[row] >= known) ++count;
  }
  for (std::size_t i = 0; i < std::min(count, kAsked); ++i) ask_for(rows[i]);
  for (std::size_t i = 0; i < count; ++i) {
    if (i + kAsked < count) ask_for(rows[i + kAsked]);
    bounds[rows[i]] = bound_finely(query, rows[i]);
  }
}

}  // namespace moracle::cpu
