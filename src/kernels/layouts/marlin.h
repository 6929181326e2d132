// The Marlin weight layouts: tiles of 16 inputs x 64 outputs whose codes lie in the order in which a warp's threads
// hold a tensor-core operand, and scales, zero points and biases permuted to match.
//
// Formulas: docs/layouts.md. Marlin's input dimension is `col` here, its output dimension `row`.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "kernels/layouts/layout_matrix.h"

namespace moracle::layout {

// What the kernel multiplies with: it decides the tile, the order of scales, and how scales are held.
enum class MarlinActivations : std::uint8_t { bits16, int8, fp8 };

// Index maps. Scales and zero points are [groups][rows] there; `grid` is {rows, groups}, and rows are a multiple of 64.
enum class MarlinScaleOrder : std::uint8_t { single, grouped };
// As vLLM chooses: single for one group, for groups not smaller than `size_k`, and for 8-bit
// activations. It passes w13 the intermediate size; Moracle passes the true columns.
[[nodiscard]] MarlinScaleOrder marlin_scale_order(const MatrixHead& head, std::int64_t size_k,
                                                  MarlinActivations activations);
[[nodiscard]] ElementMap marlin_scale_map(MarlinScaleOrder order);
// Grouped, and swapped within each 4 as {0, 2, 1, 3}: one-byte scales, which are unpacked four at a time.
[[nodiscard]] ElementMap marlin_byte_scale_map(MarlinScaleOrder order, MarlinActivations activations);
[[nodiscard]] ElementMap marlin_zero_map(int bits, MarlinActivations activations);
[[nodiscard]] ElementMap marlin_weight_map(int bits, MarlinActivations activations);

// Sizes that the expert kernels have tiles for.
inline constexpr Sizes kMarlinSizes{.hidden = {128}, .intermediate = {64, true}};
inline constexpr Sizes kMarlinMxfp4Sizes{.hidden = {256, true}, .intermediate = {128, true}};
// Of NVFP4: outputs in 64 where inputs are in 128, else outputs in 128 and inputs in 64.
[[nodiscard]] Sizes marlin_nvfp4_sizes(std::int64_t hidden);

// Of a linear: 64 outputs with inputs in 128 or 128 with inputs in 64, padded with zeros, whichever stores less.
[[nodiscard]] Result<Grid> marlin_linear_part(const MatrixHead& head);

// Integer scales of 8-bit activations: i16 numbers s / max * 4096, rounded, under one f32 factor max / 4096 by which
// the activations' scales are multiplied. The quotient is rounded in the scales' own type.
struct MarlinInt8Scales {
  StoredScales numbers{};  // i16 bit patterns in the place of 16-bit floats
  float global = 1.0F;
};

// int4 and int8 weights, symmetric or with zero points, columns in order or sorted by group index.
struct MarlinWna16Pack {
  MatrixHead head{};
  ColumnOrder order{};
  MarlinActivations activations = MarlinActivations::bits16;
  StoredCodes weight{};
  std::variant<StoredScales, MarlinInt8Scales> scales{};
  std::variant<MiddleZero, StoredCodes> zeros{};
  Bias bias{};

  [[nodiscard]] std::uint8_t code(std::int64_t row, std::int64_t position) const;
  [[nodiscard]] float scale(std::int64_t row, std::int64_t group) const;
  [[nodiscard]] std::uint8_t zero(std::int64_t row, std::int64_t group) const;
  [[nodiscard]] std::size_t bytes() const;
};
// FP8 weights, whatever the granularity; scales are 16-bit floats with the exponent difference between E4M3 and that
// float folded in, 2^120 for bf16 and 2^8 for f16.
struct MarlinFp8Pack {
  MatrixHead head{};
  ColumnOrder order{};
  StoredCodes weight{};
  StoredScales scales{};
  Bias bias{};

  [[nodiscard]] std::uint8_t code(std::int64_t row, std::int64_t position) const { return weight.at(row, position); }
  [[nodiscard]] float scale(std::int64_t row, std::int64_t group) const;
  [[nodiscard]] std::uint8_t zero(std::int64_t, std::int64_t) const { return 0; }
  [[nodiscard]] std::size_t bytes() const;
};
// MXFP4 and MXFP8: E8M0 scales. With FP8 activations the exponent is raised by 6.
struct MarlinMxPack {
  MatrixHead head{};
  ColumnOrder order{};
  MarlinActivations activations = MarlinActivations::bits16;
  StoredCodes weight{};
  StoredScales scales{};
  Bias bias{};

  [[nodiscard]] std::uint8_t code(std::int64_t row, std::int64_t position) const { return weight.at(row, position); }
  [[nodiscard]] float scale(std::int64_t row, std::int64_t group) const;
  [[nodiscard]] std::uint8_t zero(std::int64_t, std::int64_t) const { return 0; }
  [[nodiscard]] std::size_t bytes() const;
};
// NVFP4: block scales as unsigned bytes of 5 exponent and 3 mantissa bits, S0E5M3, over a factor that all experts
// share; global scales carry the inverse of the factor and the exponent difference. Scales below 2^-6 / factor become
// 0.
struct MarlinNvfp4Pack {
  MatrixHead head{};  // with the global scales of the checkpoint as `globals` gives them back
  ColumnOrder order{};
  ScaleType type = ScaleType::bf16;  // the model's
  float factor = 1.0F;
  StoredCodes weight{};
  StoredScales scales{};         // bytes; E4M3 names only their width
  std::vector<float> globals{};  // [parts], as the kernel multiplies them
  Bias bias{};

  [[nodiscard]] std::uint8_t code(std::int64_t row, std::int64_t position) const { return weight.at(row, position); }
  [[nodiscard]] float scale(std::int64_t row, std::int64_t group) const;
  [[nodiscard]] std::uint8_t zero(std::int64_t, std::int64_t) const { return 0; }
  [[nodiscard]] std::size_t bytes() const;
};

struct MarlinOptions {
  MarlinActivations activations = MarlinActivations::bits16;
  // Of 16-bit scales: f16 or bf16. none: as stored, and bf16 where the checkpoint's are wider.
  ScaleType dtype = ScaleType::none;
};
// Errors: "layout.shape", "layout.scheme", "layout.scale" for a scale that the form cannot hold, "layout.activations".
Result<MarlinWna16Pack> pack_marlin_wna16(const LayoutMatrix& matrix, Role role, const MarlinOptions& options = {});
Result<MarlinFp8Pack> pack_marlin_fp8(const LayoutMatrix& matrix, Role role, const MarlinOptions& options = {});
Result<MarlinMxPack> pack_marlin_mx(const LayoutMatrix& matrix, Role role, const MarlinOptions& options = {});
// `factor`: of the whole layer, from marlin_nvfp4_factor over the largest block scale of all experts' matrices of a
// role.
Result<MarlinNvfp4Pack> pack_marlin_nvfp4(const LayoutMatrix& matrix, Role role, float factor,
                                          const MarlinOptions& options = {});
[[nodiscard]] float marlin_nvfp4_factor(float largest_scale, ScaleType dtype);

// The recoding of int4 under FP8 activations: u - z from the zero point up, 15 - u below it. Its inverse.
[[nodiscard]] constexpr std::uint8_t marlin_fp8_recode(std::uint8_t code, std::uint8_t zero) {
  return static_cast<std::uint8_t>(code >= zero ? code - zero : 15 - code);
}
[[nodiscard]] constexpr std::uint8_t marlin_fp8_decode(std::uint8_t code, std::uint8_t zero) {
  return static_cast<std::uint8_t>(code <= 15 - zero ? code + zero : 15 - code);
}

}  // namespace moracle::layout
