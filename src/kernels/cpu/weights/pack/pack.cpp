// Packing of canonical matrices into panels.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "kernels/cpu/faults.h"
#include "kernels/cpu/weights/pack/pack.h"
#include "kernels/cpu/weights/pack/pack_lines.h"
#include "scheme/codes.h"

namespace moracle::cpu {

namespace {

// What one read decodes, so that it stays in L2 until it is packed. Formats that store columns of
// rows are read in runs of as many rows, from places far apart: the longer, the fewer misses.
constexpr std::int64_t kReadBytes = std::int64_t{256} << 10;

// What is fetched at a time: it stays in L2 beside what is made of it.
constexpr std::int64_t kFetchBytes = std::int64_t{128} << 10;
constexpr std::size_t kFetchScales = std::size_t{32} << 10;
constexpr std::int64_t kScaleBytes = 32;  // of a row's scales, that are read at a time: a vector, or two

// Panels whose words are taken from the file at a time, where words of neighbouring rows lie side by side.
constexpr std::int64_t kStoredPanels = 128;

std::int64_t panels_per_read(const PanelFormat& format) {
  const std::int64_t width = quantized(format.code) ? 1 : 4;
  const std::int64_t fit = kReadBytes / (kPanelRows * format.cols * width);
  return std::clamp<std::int64_t>(fit, quantized(format.code) ? 2 : 1, 8);
}

// One group's scales [rows], `stride` apart, to [32] in the width of the panel; rows that are missing get zeros.
void pack_scales(ScaleCode form, const float* scales, std::int64_t stride, std::int64_t rows, std::byte* out) {
  float column[kPanelRows] = {};
  for (std::int64_t row = 0; row < rows; ++row) column[row] = scales[row * stride];
  if (form != ScaleCode::e4m3 && form != ScaleCode::e8m0) return kPacking.scale_column(form, column, out);
  const auto encode = form == ScaleCode::e4m3 ? encode_e4m3 : encode_e8m0;
  for (std::int64_t row = 0; row < kPanelRows; ++row)
    out[row] = row < rows ? static_cast<std::byte>(encode(column[row])) : std::byte{0};
}

void pack_zeros(const std::uint8_t* zeros, std::int64_t stride, std::int64_t rows, std::byte* out) {
  for (std::int64_t row = 0; row < kPanelRows; ++row)
    out[row] = row < rows ? static_cast<std::byte>(zeros[row * stride]) : std::byte{0};
}

// Where the parts of a panel lie.
struct PanelLines {
  explicit PanelLines(const PanelFormat& format)
      : columns(line_columns(format.code)),
        group(format.steps * kStepColumns / columns),
        last(format.last_steps * kStepColumns / columns),
        all((format.groups - 1) * group + last),
        zeros_at(kPanelRows * (scale_bytes(format.scale))),
        tail(quantized(format.code) ? zeros_at + (format.zeros ? kPanelRows : 0) : 0) {}
  std::int64_t columns;  // of a line
  std::int64_t group;    // lines of every group but the last
  std::int64_t last;     // and of that one
  std::int64_t all;
  std::int64_t zeros_at;  // from the end of a group's lines
  std::int64_t tail;      // scales and zero points
};

// Calls body(group, group of the checkpoint, memory of its scales) for every group of a panel.
template <class Body>
void each_tail(const PanelFormat& format, const PanelLines& lines, std::byte* out, const Body& body) {
  for (std::int64_t g = 0; g < format.groups; ++g) {
    out += (g + 1 == format.groups ? lines.last : lines.group) * kPanelRows * 4;
    body(g, g * format.group_cols / format.stored_group_cols, out);  // groups may be finer than stored
    out += lines.tail;
  }
}

void pack_tails(const PanelFormat& format, const PanelLines& lines, const MatrixPanel& panel, std::int64_t first_row,
                std::int64_t rows, std::byte* out) {
  const std::int64_t stored_groups = format.stored_groups();
  each_tail(format, lines, out, [&](std::int64_t g, std::int64_t stored, std::byte* tail) {
    const auto at = first_row * stored_groups + stored;
    pack_scales(format.scale, panel.scales.data() + at, stored_groups, rows, tail);
    if (format.zeros) pack_zeros(panel.zeros.data() + at, stored_groups, rows, tail + lines.zeros_at);
    if (format.zeros && fault(KernelFault::zero_point_ignored))
      std::memset(tail + lines.zeros_at, format.code == WeightCode::int4 ? 8 : 128, kPanelRows);
    if (g + 1 == format.groups && fault(KernelFault::last_group_lost))
      std::memset(tail, 0, static_cast<std::size_t>(lines.zeros_at));
  });
}

// Lines of `rows` rows, from the first group on.
LineArgs line_args(const PanelFormat& format, const PanelLines& lines, std::int64_t rows, std::byte* out) {
  return {.code = format.code,
          .rows = rows,
          .columns = format.cols,
          .lines = lines.all,
          .out = out,
          .group_left = lines.group,
          .group_lines = lines.group,
          .group_tail = lines.tail};
}

// One panel out of `rows` rows of `panel` from `first_row` on.
void pack_panel(const PanelFormat& format, const MatrixPanel& panel, std::int64_t first_row, std::int64_t rows,
                std::byte* out) {
  const bool codes = quantized(format.code);
  const auto all = codes ? std::as_bytes(std::span(panel.codes)) : std::as_bytes(std::span(panel.values));
  const PanelLines lines(format);
  LineArgs args = line_args(format, lines, rows, out);
  args.stride = format.cols * (codes ? 1 : 4);
  args.from = all.data() + first_row * args.stride;
  static_cast<void>(kPacking.lines(args));  // whoever read them has checked them
  if (codes) pack_tails(format, lines, panel, first_row, rows, out);
}

// Columns of every row into packed order.
void reorder(std::span<const std::int32_t> order, std::int64_t rows, std::vector<std::uint8_t>& codes) {
  std::vector<std::uint8_t> row(order.size());
  for (std::int64_t r = 0; r < rows; ++r) {
    std::uint8_t* at = codes.data() + r * std::ssize(order);
    std::memcpy(row.data(), at, row.size());
    for (std::size_t p = 0; p < row.size(); ++p) at[p] = row[static_cast<std::size_t>(order[p])];
  }
}

// Panels [begin, end), from the first of them at `out` on.
struct PanelRun {
  const MatrixSource& source;
  const PanelFormat& format;
  std::int64_t begin;
  std::int64_t end;
  std::byte* out;
  std::size_t stride;
  [[nodiscard]] std::int64_t first_row() const { return begin * kPanelRows; }
  [[nodiscard]] std::int64_t end_row() const { return std::min(end * kPanelRows, format.rows); }
  [[nodiscard]] PanelRun part(std::int64_t from, std::int64_t to) const {
    return {source, format, from, to, out + static_cast<std::size_t>(from - begin) * stride, stride};
  }
  // body(first row counted from the first of the run, rows, memory of the panel)
  template <class Body>
  void each(Body body) const {
    for (std::int64_t p = begin; p < end; ++p) {
      const std::int64_t row = (p - begin) * kPanelRows;
      body(row, std::min(kPanelRows, end_row() - first_row() - row),
           out + static_cast<std::size_t>(p - begin) * stride);
    }
  }
};

Result<> pack_decoded(const PanelRun& run, std::span<const std::int32_t> order, MatrixPanel& panel) {
  MORACLE_TRY(run.source.read(run.first_row(), run.end_row(), panel));
  if (run.format.recode != nullptr)
    for (std::uint8_t& code : panel.codes) code = run.format.recode[code & 63U];
  if (!order.empty()) reorder(order, panel.rows, panel.codes);
  run.each([&](std::int64_t row, std::int64_t rows, std::byte* out) { pack_panel(run.format, panel, row, rows, out); });
  return Ok{};
}

// Where the file holds what a line holds, or rows of it.
std::optional<RawCodes> packable(const MatrixSource& source, const PanelFormat& format,
                                 std::span<const std::int32_t> order) {
  if (format.recode != nullptr || !order.empty()) return std::nullopt;
  std::optional<RawCodes> words = source.raw_codes();
  if (!words || words->bits != 32 / line_columns(format.code)) return std::nullopt;
  if (!words->by_rows() && words->row_bytes != 4) return std::nullopt;
  return words;
}

// Words that lie row by row.
bool pack_rows(const PanelRun& run, const RawCodes& words, PackScratch& scratch) {
  LineArgs args = line_args(run.format, PanelLines(run.format), 0, run.out);
  args.raw = true;
  args.flip = words.flip;
  args.stride = words.row_bytes;
  const std::int64_t rows = run.end_row() - run.first_row();
  const auto bytes = narrow<std::size_t>((rows - 1) * words.row_bytes + run.format.cols * words.bits / 8);
  // To the end of the last row's stride, so that a matrix whose rows lie between these finds them there.
  const std::byte* const from = scratch.words.get(run.source, {words.first + run.first_row() * words.row_bytes, bytes},
                                                  words.tensor, narrow<std::size_t>(rows * words.row_bytes));
  bool usual = true;
  run.each([&](std::int64_t row, std::int64_t count, std::byte* out) {
    args.from = from + row * words.row_bytes;
    args.rows = count;
    args.out = out;
    usual = kPacking.lines(args) && usual;
  });
  return usual;
}

// Words of neighbouring rows that lie side by side: some lines of all panels at a time.
bool pack_columns(const PanelRun& run, const RawCodes& words, PackScratch& scratch) {
  constexpr std::int64_t kFewestLines = 16;
  const PanelLines lines(run.format);
  const std::int64_t rows = run.end_row() - run.first_row();
  const std::int64_t line_bytes = rows * words.row_bytes;
  const std::int64_t stored = run.format.cols / lines.columns;
  const std::int64_t step = std::max(kFewestLines, kFetchBytes / line_bytes / kFewestLines * kFewestLines);
  LineArgs args = line_args(run.format, lines, rows, run.out);
  args.stride = line_bytes;
  args.panel_stride = narrow<std::int64_t>(run.stride);
  args.flip = words.flip;
  bool usual = true;
  for (std::int64_t first = 0; first < lines.all; first += step) {
    const std::int64_t count = std::min(step, lines.all - first);
    const std::int64_t there = std::clamp<std::int64_t>(stored - first, 0, count);
    const std::byte* const from = words.first + run.first_row() * words.row_bytes + first * words.word_bytes;
    args.from = scratch.words.columns(run.source, from, words.word_bytes, there, line_bytes);
    args.columns = there;
    args.lines = count;
    args.out = run.out + first * kPanelRows * 4 + first / lines.group * lines.tail;
    args.group_left = lines.group - first % lines.group;
    usual = kPacking.word_lines(args) && usual;
  }
  return usual;
}

// Scales as the file has them, in memory: where that of the run's first row and group is. Null: panels keep them
// otherwise, or rows are missing.
const std::byte* fetch_scales(const PanelRun& run, RawScales& scales, PackScratch& scratch) {
  const auto width = (scale_bytes(run.format.scale));
  const std::int64_t rows = run.end_row() - run.first_row();
  if (run.format.zeros || scale_code(scales.type) != run.format.scale || rows % kPanelRows != 0) return nullptr;
  const std::byte* const first = scales.first + run.first_row() * scales.row_bytes;
  const std::int64_t groups = run.format.stored_groups();
  if (scales.group_bytes == width) {
    const auto bytes = narrow<std::size_t>((rows - 1) * scales.row_bytes + groups * width);
    const std::size_t most = std::max(kFetchScales, narrow<std::size_t>(rows * scales.row_bytes));
    return scratch.scales.get(run.source, {first, bytes}, scales.tensor, most);
  }
  if (scales.row_bytes != width) return nullptr;
  const std::int64_t in_file = std::exchange(scales.group_bytes, rows * width);
  return scratch.scales.columns(run.source, first, in_file, groups, scales.group_bytes);
}

// Scales as the file has them to all panels of the run. False: they have to be decoded.
bool pack_raw_scales(const PanelRun& run, PackScratch& scratch) {
  std::optional<RawScales> scales = run.source.raw_scales();
  const std::byte* const from = scales ? fetch_scales(run, *scales, scratch) : nullptr;
  if (from == nullptr) return false;
  const std::int64_t width = scale_bytes(run.format.scale);
  const bool by_rows = scales->row_bytes != width;
  // Words of scales that lie row by row are turned into lines, as words of codes are.
  const std::int64_t words = ceil_div(run.format.stored_groups() * width, kScaleBytes) * kScaleBytes / 4;
  scratch.scale_lines.resize(narrow<std::size_t>(words * kPanelRows * 4));
  LineArgs turn{.code = WeightCode::f32,
                .stride = scales->row_bytes,
                .rows = kPanelRows,
                .columns = words,
                .lines = words,
                .out = scratch.scale_lines.data(),
                .group_left = words};
  const PanelLines lines(run.format);
  bool usual = true;
  run.each([&](std::int64_t row, std::int64_t, std::byte* out) {
    turn.from = from + row * scales->row_bytes;
    if (by_rows) static_cast<void>(kPacking.lines(turn));
    each_tail(run.format, lines, out, [&](std::int64_t, std::int64_t stored, std::byte* tail) {
      const std::int64_t at = stored * width;  // in its row
      const std::byte* const column =
          by_rows ? turn.out + at / 4 * kPanelRows * 4 + at % 4 : turn.from + stored * scales->group_bytes;
      usual = kPacking.stored_scales(run.format.scale, column, by_rows ? 4 : width, tail) && usual;
    });
  });
  return usual;
}

// Words of the file straight into panels.
Result<> pack_stored(const PanelRun& run, const RawCodes& words, PackScratch& scratch) {
  MatrixPanel& panel = scratch.panel;
  const bool usual = words.by_rows() ? pack_rows(run, words, scratch) : pack_columns(run, words, scratch);
  if (!usual) return pack_decoded(run, {}, panel);  // which says what is wrong, and where
  if (!quantized(run.format.code)) return Ok{};
  if (pack_raw_scales(run, scratch)) return run.source.check_zeros(run.first_row(), run.end_row());
  MORACLE_TRY(run.source.read_scales(run.first_row(), run.end_row(), panel));
  const PanelLines lines(run.format);
  run.each([&](std::int64_t row, std::int64_t rows, std::byte* out) {
    pack_tails(run.format, lines, panel, row, rows, out);
  });
  return Ok{};
}

// Panels of one step.
std::int64_t step_panels(const PanelFormat& format, const std::optional<RawCodes>& words) {
  if (!words) return panels_per_read(format);
  return words->by_rows() ? std::max<std::int64_t>(1, kFetchBytes / (kPanelRows * words->row_bytes)) : kStoredPanels;
}

}  // namespace

std::int64_t panels_per_fetch(const MatrixSource& source, const PanelFormat& format,
                              std::span<const std::int32_t> order) {
  const std::optional<RawCodes> words = packable(source, format, order);
  return words && words->by_rows() ? step_panels(format, words) : format.panels;
}

Result<> pack_panels(const MatrixSource& source, const PanelFormat& format, std::span<const std::int32_t> order,
                     std::int64_t begin, std::int64_t end, std::byte* out, std::size_t stride, PackScratch& scratch) {
  const PanelRun run{source, format, begin, end, out, stride};
  const std::optional<RawCodes> words = packable(source, format, order);
  const std::int64_t step = step_panels(format, words);
  for (std::int64_t p = begin; p < end; p += step) {
    const PanelRun part = run.part(p, std::min(p + step, end));
    MORACLE_TRY(words ? pack_stored(part, *words, scratch) : pack_decoded(part, order, scratch.panel));
  }
  return Ok{};
}

}  // namespace moracle::cpu
