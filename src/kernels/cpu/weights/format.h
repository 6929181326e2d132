// How a matrix is packed for a target, and which kernel serves how many tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "kernels/cpu/target.h"
#include "oracle/card.h"
#include "scheme/canonical.h"

namespace moracle::cpu {

[[nodiscard]] ScaleCode scale_code(ScaleType type);  // what keeps such scales as they are published

// How one matrix is stored. Two matrices of one scheme and shape have the same format.
struct PanelFormat : PanelShape {
  WeightCode code = WeightCode::f32;
  ActDtype input = ActDtype::f32;
  std::int32_t offset = 0;         // as of GemmKernel
  std::int64_t block_columns = 0;  // likewise
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t group_cols = 0;  // cols where the code is dense
  // Of the checkpoint: a multiple of group_cols, which follows finer input scales.
  std::int64_t stored_group_cols = 0;
  std::int64_t panels = 0;
  std::optional<QuantKey> activation{};  // quantization of the activations that meet this matrix
  std::int64_t own_group_cols = 0;  // columns that share a scale where the kernel itself makes activations integers
  // Codes that are kept as others of the same value: [64], by the checkpoint's code. Null: kept as they are.
  const std::uint8_t* recode = nullptr;

  [[nodiscard]] std::int64_t padded_cols() const { return ((groups - 1) * steps + last_steps) * kStepColumns; }
  [[nodiscard]] std::int64_t padded_rows() const { return panels * kPanelRows; }
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(panels) * panel_bytes; }
  [[nodiscard]] std::int64_t stored_groups() const { return (cols + stored_group_cols - 1) / stored_group_cols; }
  // Of a row that the kernel itself makes integers: one for every own_group_cols columns.
  [[nodiscard]] std::int64_t running_scales() const { return (cols + own_group_cols - 1) / own_group_cols; }
  [[nodiscard]] std::size_t input_scale_count() const {  // scales of one activation row
    if (scaling == ActScaling::running) return static_cast<std::size_t>(running_scales()) + 1;
    if (!activation) return 0;
    return scaling == ActScaling::per_group ? static_cast<std::size_t>(groups) : 1;
  }
  [[nodiscard]] bool integer_input() const { return input != ActDtype::f32 && input != ActDtype::bf16; }
  // Of a row in planes, from a code's high byte to its low one.
  [[nodiscard]] std::int64_t plane_columns() const { return (padded_cols() + 63) / 64 * 64; }
  // Blocks of a group whose products kernels sum up in 16 bits; 0: they sum up groups.
  [[nodiscard]] std::int64_t group_blocks() const {
    return block_columns > 0 ? (group_cols + block_columns - 1) / block_columns : 0;
  }
  [[nodiscard]] std::int64_t group_sums() const {  // of one activation row; those of blocks are behind them
    return zeros || (integer_input() && block_columns == 0) ? groups : 0;
  }
  [[nodiscard]] std::size_t sum_count() const {  // of one activation row
    return static_cast<std::size_t>(group_sums() + groups * group_blocks());
  }
  [[nodiscard]] std::size_t input_bytes() const {  // per value
    if (input == ActDtype::i8) return 1;
    return input == ActDtype::f32 ? 4 : 2;
  }
  // Bytes from one activation row to the next: a line of zeros behind the values, into which kernels that take
  // whole lines may read, and an odd number of lines, so that rows of a tile fall into different sets of the L1.
  [[nodiscard]] std::size_t input_stride() const;
};

// What a matrix has beside codes and their scales.
struct MatrixExtras {
  std::vector<std::int32_t> order;   // empty: columns in order
  std::vector<float> bias;           // of whole panels; empty: none
  float scale = 1.0F;                // second level
  std::optional<float> input_scale;  // static, of activations

  static MatrixExtras of(const CanonicalLinear& linear);
  // Of the panel whose first row is `first`; null: none.
  [[nodiscard]] const float* bias_at(std::int64_t first) const { return bias.empty() ? nullptr : bias.data() + first; }
};

// Whether matrices of these formats meet the same activation rows, order and static scales apart.
[[nodiscard]] bool activations_alike(const PanelFormat& a, const PanelFormat& b);

// One packed matrix and the kernels that serve it, by tokens.
class PackedFormat {
 public:
  static constexpr std::size_t kMaxForms = 2;

  // Panels, and activations as the most tokens meet them.
  [[nodiscard]] const PanelFormat& layout() const { return forms_[0]; }
  // Formats that differ in the activations alone.
  [[nodiscard]] std::size_t forms() const { return form_count_; }
  [[nodiscard]] const PanelFormat& form(std::size_t i) const { return forms_[i]; }
  [[nodiscard]] std::size_t form_of(std::int64_t tokens) const { return range(tokens).form; }
  [[nodiscard]] const PanelFormat& of(std::int64_t tokens) const { return forms_[form_of(tokens)]; }
  [[nodiscard]] const GemmKernel& kernel(std::int64_t tokens) const { return *range(tokens).kernel; }
  [[nodiscard]] bool even_rows() const;  // some kernel wants
  // Whether so many tokens meet several panels at once.
  [[nodiscard]] bool interleaves(std::int64_t tokens) const { return interleaved_ && tokens <= kInterleavedTokens; }

 private:
  static constexpr std::size_t kMaxTokenRanges = 4;
  struct TokenRange {
    std::int64_t min_tokens = 0;
    const GemmKernel* kernel = nullptr;
    std::size_t form = 0;
  };
  friend Result<PackedFormat> packed_format(const CanonicalLinear&, const Target&, Numerics, bool);

  [[nodiscard]] const TokenRange& range(std::int64_t tokens) const {
    std::size_t i = range_count_ - 1;
    while (i > 0 && ranges_[i].min_tokens > tokens) --i;
    return ranges_[i];
  }

  PanelFormat forms_[kMaxForms];
  std::size_t form_count_ = 1;
  TokenRange ranges_[kMaxTokenRanges];
  std::size_t range_count_ = 0;
  bool interleaved_ = false;
};

// `bf16_in_12_bits`: as bf16x12-inl.h packs it. Errors: "kernel.scheme" where the layout has no code for the matrix or
// the target no kernel; cards keep such matrices away.
Result<PackedFormat> packed_format(const CanonicalLinear& linear, const Target& target, Numerics numerics,
                                   bool bf16_in_12_bits = false);

}  // namespace moracle::cpu
