// Canonical matrices in the panel layout: packing, and the preparation of the activations that meet them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/memory.h"
#include "base/result.h"
#include "kernels/cpu/fetched.h"
#include "kernels/cpu/panel.h"
#include "scheme/canonical.h"

namespace moracle::cpu {

[[nodiscard]] PanelScale stored_scale(ScaleType type);    // what keeps such scales as they are published
[[nodiscard]] std::size_t scale_bytes(PanelScale scale);  // of one
[[nodiscard]] std::size_t step_bytes(PanelCode code);     // of 8 columns of 32 rows
[[nodiscard]] bool quantized(PanelCode code);             // has scales

// How one matrix is stored. Two matrices of one scheme and shape have the same format.
struct PanelFormat {
  PanelCode code = PanelCode::f32;
  PanelScale scale = PanelScale::f32;
  bool zeros = false;
  InputForm input = InputForm::f32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t group_cols = 0;  // cols where the code is dense
  // Of the checkpoint: a multiple of group_cols, which follows finer input scales.
  std::int64_t stored_group_cols = 0;
  std::int64_t groups = 1;
  std::int64_t steps = 0;  // of 8 columns, in every group but the last
  std::int64_t last_steps = 0;
  std::int64_t panels = 0;
  std::size_t panel_bytes = 0;
  // Quantization of the activations that meet this matrix, and whether its scales are per group of the weight (else one
  // per token, or static).
  std::optional<QuantKey> activation{};
  bool group_input_scales = false;
  std::int64_t own_group_cols = 0;  // columns that share a scale where the kernel itself makes activations integers
  const CodeKernels* kernels = nullptr;
  const CodeKernels::Tiles* tiles = nullptr;  // of `kernels`, for these activations and zero points
  const std::int64_t* wide_panels = nullptr;  // [kWideTiles]: panels that the wide tiles take
  bool interleaved = false;                   // as of PanelOps
  // Codes that are kept as others of the same value: [64], by the checkpoint's code. Null: kept as they are.
  const std::uint8_t* recode = nullptr;

  [[nodiscard]] std::int64_t padded_cols() const { return ((groups - 1) * steps + last_steps) * kStepColumns; }
  [[nodiscard]] std::int64_t padded_rows() const { return panels * kPanelRows; }
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(panels) * panel_bytes; }
  [[nodiscard]] std::int64_t stored_groups() const { return (cols + stored_group_cols - 1) / stored_group_cols; }
  // Of a row that the kernel itself makes integers: one for every own_group_cols columns.
  [[nodiscard]] std::int64_t running_scales() const { return (cols + own_group_cols - 1) / own_group_cols; }
  [[nodiscard]] InputScaling input_scaling() const {
    if (own_group_cols > 0) return InputScaling::running;
    return group_input_scales ? InputScaling::of_group : InputScaling::of_token;
  }
  [[nodiscard]] std::size_t input_scale_count() const {  // scales of one prepared row
    if (own_group_cols > 0) return static_cast<std::size_t>(running_scales()) + 1;
    if (!activation) return 0;
    return group_input_scales ? static_cast<std::size_t>(groups) : 1;
  }
  // Whether so many tokens meet several panels at once.
  [[nodiscard]] bool interleaves(std::int64_t tokens) const { return interleaved && tokens <= kWideTiles; }
  [[nodiscard]] bool integer_input() const { return input != InputForm::f32 && input != InputForm::bf16; }
  // Of a row in planes, from a code's high byte to its low one.
  [[nodiscard]] std::int64_t input_plane() const { return (padded_cols() + 63) / 64 * 64; }
  // Blocks of a group whose products kernels sum up in 16 bits; 0: they sum up groups.
  [[nodiscard]] std::int64_t group_blocks() const {
    const std::int64_t columns = kernels->block_columns;
    return columns > 0 ? (group_cols + columns - 1) / columns : 0;
  }
  [[nodiscard]] std::int64_t group_sums() const {  // of one prepared row; those of blocks are behind them
    return zeros || (integer_input() && kernels->block_columns == 0) ? groups : 0;
  }
  [[nodiscard]] std::size_t sum_count() const {  // of one prepared row
    return static_cast<std::size_t>(group_sums() + groups * group_blocks());
  }
  [[nodiscard]] std::size_t input_bytes() const {  // per value
    if (input == InputForm::i8) return 1;
    return input == InputForm::f32 ? 4 : 2;
  }
  // Bytes from one prepared activation row to the next: a line of zeros behind the values, into which kernels that take
  // whole lines may read, and an odd number of lines, so that the rows of a tile do not fall into one set of the
  // first-level cache.
  [[nodiscard]] std::size_t input_stride() const;
};

// Whether matrices of these formats meet the same prepared rows, order and static scales apart.
[[nodiscard]] bool prepared_alike(const PanelFormat& a, const PanelFormat& b);

// One packed matrix and the forms in which activations may meet it: one for few tokens, one for more. Often the same.
struct PanelForms {
  PanelFormat many;
  PanelFormat few;             // panels as in `many`
  std::int64_t few_below = 0;  // tokens; 0: always `many`

  [[nodiscard]] const PanelFormat& of(std::int64_t tokens) const { return tokens < few_below ? few : many; }
};

// Errors: "kernel.scheme" where the layout has no code for the matrix; cards keep such matrices away.
Result<PanelForms> panel_forms(const CanonicalLinear& linear, const PanelOps& ops);

// The format of the same matrix with its bf16 numbers in 12 bits (compact.h), where the kernels know it.
[[nodiscard]] std::optional<PanelFormat> compacted(const PanelFormat& format, const PanelOps& ops);

// Columns in stored order: column_order[p] is the input column at packed position p. Empty: columns in order.
[[nodiscard]] std::vector<std::int32_t> column_order(const MatrixSpec& spec);

// One thread's memory for packing: what it has decoded, or fetched from the file.
struct PackScratch {
  MatrixPanel panel;
  Fetched words;
  Fetched scales;
  std::vector<std::byte> columns;  // a panel's scales, group by group
};

// Panels that are packed from one fetch. Matrices that lie among each other's rows are packed in turns of so many.
[[nodiscard]] std::int64_t panels_together(const MatrixSource& source, const PanelFormat& format,
                                           std::span<const std::int32_t> order);

// Packs panels [begin, end) of `source`; panel p goes to out + (p - begin) * stride.
Result<> pack_panels(const MatrixSource& source, const PanelFormat& format, std::span<const std::int32_t> order,
                     std::int64_t begin, std::int64_t end, std::byte* out, std::size_t stride, PackScratch& scratch);

// Where the parts of one prepared activation row go.
struct PreparedRow {
  std::byte* x;  // padded_cols() values in the format's input form, then zeros to the end of the stride
  float* sums;   // [sum_count()], where the format needs sums; of integer codes: int32 in the same place
  // Quantized activations, by the format's input_scaling(): one; one a group; or the factors from each running scale to
  // the next, the first of which meets totals of zero and is finite, and behind them the last scale.
  float* scales;
};

// Prepares one activation row: reordered, zero-padded, quantized where the scheme says so, rounded to bf16 where the
// kernel wants that, with the sum of each group where zero points are stored. `input_scale` is the static scale of the
// scheme, if it has one; `scratch` holds padded_cols() f32.
void prepare_row(const PanelOps& ops, const PanelFormat& format, std::span<const std::int32_t> order,
                 std::optional<float> input_scale, const float* x, float* scratch, const PreparedRow& row);

// Storage for the prepared rows of one matrix.
struct PreparedRows {
  std::span<std::byte> x;
  std::span<float> sums;
  std::span<float> scales;

  static PreparedRows take(const PanelFormat& format, std::size_t rows, BumpArena& arena);
  [[nodiscard]] static std::size_t bytes(const PanelFormat& format, std::size_t rows);
  [[nodiscard]] PreparedRow row(const PanelFormat& format, std::int64_t index) const;
};

}  // namespace moracle::cpu
