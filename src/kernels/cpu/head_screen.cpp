#include "kernels/cpu/head_screen.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/checked.h"
#include "scheme/codes.h"

namespace moracle::cpu {

namespace {

constexpr float kMostCode = 127.0F;

// Above it, a partial sum of the exact kernel might leave f32, which run() would tell.
constexpr float kMostActivation = 1e15F;

// |computed - true| / (|W_r| |x|) of a product of `cols` columns: each of up to `cols` multiplications and as many
// additions, in any order, rounds by 2^-24 at most. A sum of a screen's panel rounds at most cols / 64 + 3 times, its
// groups being exact; one of F at most cols / 128 + 10 times, but of codes raised by their offset and of what takes it
// away: 8.75 and 8.5 |S_r| |x~| where every group has one weight and zeros beside it, and none has more. 18 times as
// much is below cols / 6 + 180. Inputs of bf16 are rounded by 2^-9 before.
double rounding_of(std::int64_t cols, InputForm input) {
  const double sums = 3 * static_cast<double>(cols + 256) * 0x1p-24;
  return sums + (input == InputForm::bf16 ? 0x1.02p-9 : 0.0);
}

// Rows of one read, so that they stay in the second-level cache.
constexpr std::int64_t kReadRows = 16;

// Where a file holds rows of bf16, which then need not be read through its mapping.
std::optional<StoredWords> stored_bf16(const MatrixSource& source) {
  if (source.spec().key.element != Element::bf16) return std::nullopt;
  std::optional<StoredWords> words = source.stored();
  return words && words->by_rows() && words->bits == 16 && words->flip == 0 ? words : std::nullopt;
}

void widen_bf16(const std::byte* from, std::int64_t count, float* to) {
  for (std::int64_t k = 0; k < count; ++k) {
    std::uint16_t weight;
    std::memcpy(&weight, from + 2 * k, sizeof weight);
    to[k] = decode_bf16(weight);
  }
}

}  // namespace

HeadScreen::HeadScreen(std::int64_t rows, std::int64_t cols)
    : rows_(rows),
      cols_(cols),
      blocks_(ceil_div(cols, kScreenBlock)),
      fine_at_(static_cast<std::size_t>(ceil_div(rows, kScreenRows) * screen_panel_bytes(blocks_))) {}

Result<> HeadScreen::pack(const PanelOps& ops, const MatrixSource& source, std::int64_t begin, std::int64_t end,
                          std::span<std::byte> memory, Fetched& fetched, Scratch& scratch) const {
  scratch.row.assign(static_cast<std::size_t>(blocks_ * kScreenBlock), 0.0F);
  scratch.groups.resize(static_cast<std::size_t>(blocks_ * kScreenGroups));
  const std::optional<StoredWords> words = stored_bf16(source);
  for (std::int64_t first = begin; first < end; first += kReadRows) {
    const std::int64_t rows = std::min(kReadRows, end - first);
    const std::byte* from = nullptr;
    if (words) {
      const auto bytes = static_cast<std::size_t>((rows - 1) * words->row_bytes + 2 * cols_);
      from = fetched.get(source, {words->first + first * words->row_bytes, bytes}, words->tensor, bytes);
    } else {
      MORACLE_TRY(source.read(first, first + rows, scratch.panel));
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      if (words) {
        widen_bf16(from + r * words->row_bytes, cols_, scratch.row.data());
      } else {
        std::copy_n(scratch.panel.values.data() + r * cols_, cols_, scratch.row.data());
      }
      const std::int64_t row = first + r;
      ops.pack_screen_row({.weights = scratch.row.data(),
                           .blocks = blocks_,
                           .panel = memory.data() + row / kScreenRows * screen_panel_bytes(blocks_),
                           .row = row % kScreenRows,
                           .fine = memory.data() + fine_at_ + static_cast<std::size_t>(row * fine_row_bytes(blocks_)),
                           .scratch = scratch.groups.data()});
    }
  }
  return Ok{};
}

std::size_t HeadScreen::query_bytes() const {
  const auto groups = static_cast<std::size_t>(blocks_ * kScreenGroups);
  return BumpArena::cost<std::int8_t>(groups * kScreenGroup) + BumpArena::cost<float>(groups + kScreenPadding) +
         BumpArena::cost<std::int32_t>(groups + kScreenPadding);
}

std::optional<HeadScreen::Query> HeadScreen::prepare(const float* x, InputForm input, BumpArena& arena) const {
  const auto groups = static_cast<std::size_t>(blocks_ * kScreenGroups);
  const auto cols = static_cast<std::size_t>(cols_);
  const auto codes = arena.take<std::int8_t>(groups * kScreenGroup);
  const auto scales = arena.take<float>(groups + kScreenPadding);
  const auto start = arena.take<std::int32_t>(groups + kScreenPadding);
  std::fill(codes.begin(), codes.end(), std::int8_t{0});
  std::fill(scales.begin(), scales.end(), 0.0F);
  std::fill(start.begin(), start.end(), 0);
  double length = 0;
  double off = 0;
  for (std::size_t g = 0; g < groups; ++g) {
    const std::size_t first = std::min(g * kScreenGroup, cols);
    const std::size_t end = std::min(first + kScreenGroup, cols);
    float most = 0.0F;
    for (std::size_t k = first; k < end; ++k) {
      if (!(std::fabs(x[k]) <= kMostActivation)) return std::nullopt;
      most = std::max(most, std::fabs(x[k]));
      length += static_cast<double>(x[k]) * static_cast<double>(x[k]);
    }
    // Where it is no normal number, codes are zero, and what they leave is the whole.
    const float scale = most / kMostCode >= 0x1p-120F ? most / kMostCode : 0.0F;
    const float inverse = scale > 0.0F ? 1.0F / scale : 0.0F;
    float sum = 0.0F;
    for (std::size_t k = first; k < end; ++k) {
      constexpr float kInteger = 0x1.8p23F;  // added and subtracted, it rounds small numbers to integers
      const float code = std::clamp(x[k] * inverse + kInteger - kInteger, -kMostCode, kMostCode);
      const double difference = static_cast<double>(x[k]) - static_cast<double>(code) * static_cast<double>(scale);
      off += difference * difference;
      sum += code;
      codes[k] = static_cast<std::int8_t>(code);
    }
    scales[g] = scale;
    start[g] = -kScreenOffset * static_cast<std::int32_t>(sum);
  }
  return Query{.x = {.codes = codes.data(), .scales = scales.data(), .start = start.data(), .blocks = blocks_},
               .length = std::sqrt(length),
               .off = std::sqrt(off),
               .rounding = rounding_of(cols_, input),
               .lost = static_cast<double>(cols_) * 0x1p-100};
}

namespace {

ScreenMargin margin_of(const HeadScreen::Query& query) {
  constexpr double kUp = 1.00001;  // for the roundings of the bound itself
  const double slack = query.rounding * (query.length + query.off);
  return {.per_error = static_cast<float>((query.length + slack) * kUp),
          .per_norm = static_cast<float>((query.off + slack) * kUp),
          .rest = static_cast<float>(query.lost * (1 + query.length))};
}

float width(const ScreenMargin& margin, float error, float norm) {
  return error * margin.per_error + norm * margin.per_norm + margin.rest;
}

// Rows of finer bits that lie anywhere: each is a trip to memory, so several are under way at a time. An instruction of
// its own, since GCC 12 takes a function of nothing but __builtin_prefetch for one without effect.
constexpr std::size_t kRowsAhead = 4;
void ask_for_row(const std::byte* row, std::int64_t bytes) {
  for (std::int64_t line = 0; line < bytes; line += 64) __asm__ volatile("prefetcht0 %0" : : "m"(row[line]));
}

}  // namespace

void HeadScreen::bound(const PanelOps& ops, const Query& query, const Panels& panels, bool streams,
                       float* bounds) const {
  ops.screen_panels({.x = query.x,
                     .margin = margin_of(query),
                     .panels = panel_at(panels.begin),
                     .count = panels.end - panels.begin,
                     .after = panel_at(panels.after),
                     .out = bounds + panels.begin * kScreenRows,
                     .streams = streams});
}

void HeadScreen::narrow_bounds(const Query& query, std::int64_t begin, std::int64_t end, float known,
                               float* bounds) const {
  const ScreenMargin margin = margin_of(query);
  std::array<std::int64_t, kMostNarrowed> doubtful;
  std::size_t count = 0;
  for (std::int64_t row = begin; row < end; ++row) {  // without a branch, which would be missed at every row in doubt
    doubtful[count] = row;
    count += bounds[row] >= known ? 1 : 0;
  }
  const std::int64_t row_bytes = fine_row_bytes(blocks_);
  for (std::size_t i = 0; i < std::min(count, kRowsAhead); ++i) ask_for_row(fine_at(doubtful[i]), row_bytes);
  for (std::size_t i = 0; i < count; ++i) {
    if (i + kRowsAhead < count) ask_for_row(fine_at(doubtful[i + kRowsAhead]), row_bytes);
    const std::int64_t row = doubtful[i];
    const float fine = screen_row_finely(query.x, fine_at(row));
    const auto& of_row = *reinterpret_cast<const ScreenNorms*>(fine_at(row) + fine_norms_at(blocks_));
    const float near = bounds[row] - width(margin, of_row.error, of_row.norm);
    // |S_r + F_r| is not above |S_r| + |W_r - S_r| + |W_r - S_r - F_r|.
    const float norm = of_row.norm + of_row.error + of_row.left;
    bounds[row] = near + fine * (of_row.unit / kFineSteps) + width(margin, of_row.left, norm);
  }
}

}  // namespace moracle::cpu
