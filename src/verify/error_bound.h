// How far a kernel's output may lie from the fp32 reference, derived from its arithmetic and the layer's own weights.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "moe/layer_runner.h"
#include "oracle/card.h"
#include "scheme/canonical.h"
#include "scheme/glu.h"

namespace moracle {

// Inputs of w2 for a sample of (token, expert) pairs, computed in fp32 as the reference kernel does.
struct HiddenSample {
  std::int64_t intermediate = 0;
  std::vector<float> rows;  // [pairs, intermediate], before w2's activation quantization
  const CanonicalLinear* down = nullptr;
};

// Takes up to `pairs` (token, expert) pairs, spread evenly over `input`. Errors: those of MatrixSource::read.
Result<HiddenSample> sample_hidden(const CanonicalExperts& experts, const ActivationSpec& activation,
                                   const LayerInput& input, std::int64_t pairs);

// Relative error (root mean square over root mean square) of `values` [rows, cols] in a kernel's input form.
// Integer forms take a scale for each 128 columns: half a step is largest / (2 * 32512) or largest / (2 * 127).
[[nodiscard]] double rounding_error(InputRounding rounding, std::span<const float> values, std::int64_t cols);

// Relative error of w2's input from values that another order of f32 sums moves across a rounding tie.
//
// The order of sums moves a hidden value by about d = 4 * sqrt(K) * 2^-24 of the hidden rms, its `reach`; K is the
// hidden size. A kernel that rounds weights moves it by sqrt(2) roundings more, four times allowed. The number of ties
// within reach grows in proportion to d. The sample is therefore moved by D = 2^-10, quantized again, and its mean
// square change scaled by d / D. `values` is the number of hidden values in the whole comparison: few values may hold
// more ties than the mean, so nine ties of the largest step seen are allowed on top (the chance of more is below 1e-3
// up to a mean of three). Returns 0 for schemes without activation quantization.
[[nodiscard]] double tie_error(const HiddenSample& sample, double reach, std::int64_t values);

// Bound on |kernel - ref| / |ref|, Euclidean norms over all tokens.
//
//   f32 sums     1e-5: sqrt(K) * 2^-24 with K up to 16384, and a factor of 1.3
//   rounding     2 * sqrt(2 (x^2 + w^2) + h^2 + w^2): x, h, w are the relative errors of the layer's input, of w2's
//                input and of the weights; gate and up each carry x and w. w is bf16's for bf16 kernels, else 0. Beside
//                quantized activations 2 * sqrt(4 w^2) for kernels that round weights, else 0.
//   ties         2 * tie_error
// The factor 2 covers tokens of unequal weight. No bound exceeds 0.05.
[[nodiscard]] double layer_error_bound(const KernelCard& card, const HiddenSample& sample, const LayerInput& input);

}  // namespace moracle
