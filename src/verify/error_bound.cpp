#include "verify/error_bound.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "base/random/random.h"
#include "scheme/activation_codes.h"

namespace moracle {

namespace {

constexpr double kSumOrder = 1e-5;
constexpr double kLargestBound = 0.05;
constexpr double kMove = 0x1p-10;    // D of tie_error
constexpr double kExtraTies = 9;     // of tie_error
constexpr std::size_t kGroup = 128;  // columns under one scale of an integer input form

// The row that a matrix multiplies: `x` as its scheme quantizes it.
std::vector<float> as_input(const CanonicalLinear& linear, std::span<const float> x) {
  std::vector<float> row(x.begin(), x.end());
  if (linear.activation) quantize_dequantize_row(*linear.activation, linear.input_scale, row);
  return row;
}

// y = W x + bias, [rows].
Result<std::vector<float>> multiply(const CanonicalLinear& linear, std::span<const float> x) {
  const MatrixSpec& spec = linear.weight->spec();
  const std::vector<float> input = as_input(linear, x);
  std::vector<float> weights(static_cast<std::size_t>(spec.cols));
  std::vector<float> y(static_cast<std::size_t>(spec.rows));
  constexpr std::int64_t kRows = 64;
  MatrixPanel panel;
  for (std::int64_t first = 0; first < spec.rows; first += kRows) {
    const std::int64_t end = std::min(first + kRows, spec.rows);
    MORACLE_TRY(linear.weight->read(first, end, panel));
    for (std::int64_t row = first; row < end; ++row) {
      if (panel.codes.empty()) {
        std::copy_n(panel.values.begin() + (row - first) * spec.cols, spec.cols, weights.begin());
      } else {
        dequantize_row(spec, panel, row - first, weights);
      }
      double sum = linear.bias.empty() ? 0.0 : linear.bias[static_cast<std::size_t>(row)];
      for (std::size_t k = 0; k < weights.size(); ++k) sum += static_cast<double>(weights[k]) * input[k];
      y[static_cast<std::size_t>(row)] = static_cast<float>(sum);
    }
  }
  return y;
}

double mean_square(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return values.empty() ? 0.0 : sum / static_cast<double>(values.size());
}

}  // namespace

Result<HiddenSample> sample_hidden(const CanonicalExperts& experts, const ActivationSpec& activation,
                                   const LayerInput& input, std::int64_t pairs) {
  HiddenSample sample{.intermediate = experts.intermediate, .rows = {}, .down = &experts.experts.front().down};
  const auto all = narrow<std::int64_t>(input.ids.size());
  const std::int64_t step = std::max<std::int64_t>(1, all / pairs);
  for (std::int64_t pair = 0; pair < all && pair / step < pairs; pair += step) {
    const auto& expert = experts.experts[static_cast<std::size_t>(input.ids[static_cast<std::size_t>(pair)])];
    const std::span x(input.x.data() + pair / input.top_k * input.hidden, static_cast<std::size_t>(input.hidden));
    MORACLE_ASSIGN(const std::vector<float> gate, multiply(expert.gate, x));
    std::vector<float> up = gate;
    if (expert.gated()) {
      MORACLE_ASSIGN(up, multiply(expert.up, x));
    }
    for (std::size_t i = 0; i < gate.size(); ++i) sample.rows.push_back(apply_activation(activation, gate[i], up[i]));
  }
  return sample;
}

double rounding_error(InputRounding rounding, std::span<const float> values, std::int64_t cols) {
  if (rounding == InputRounding::none) return 0.0;
  if (rounding == InputRounding::bf16)
    return 0x1p-9 / std::sqrt(3.0);  // evenly spread over half a unit in the last place
  const double codes = rounding == InputRounding::eight_bits ? 127.0 : 32512.0;
  double error = 0;
  const auto width = static_cast<std::size_t>(cols);
  for (std::size_t row = 0; row + width <= values.size(); row += width) {
    for (std::size_t first = 0; first < width; first += kGroup) {
      const auto group = values.subspan(row + first, std::min(kGroup, width - first));
      double largest = 0;
      for (const float value : group) largest = std::max(largest, std::abs(static_cast<double>(value)));
      error += std::pow(largest / codes, 2) / 12 * static_cast<double>(group.size());
    }
  }
  const double norm = mean_square(values) * static_cast<double>(values.size());
  return norm > 0 ? std::sqrt(error / norm) : 0.0;
}

double tie_error(const HiddenSample& sample, double reach, std::int64_t values) {
  if (!sample.down->activation) return 0.0;
  const double rms = std::sqrt(mean_square(sample.rows));
  const auto width = static_cast<std::size_t>(sample.intermediate);
  Random random(1);
  double change = 0;
  double largest = 0;
  double norm = 0;
  for (std::size_t first = 0; first + width <= sample.rows.size(); first += width) {
    const std::span row(sample.rows.data() + first, width);
    std::vector<float> moved(row.begin(), row.end());
    for (float& value : moved) value += static_cast<float>(kMove * rms) * random.normal();
    const std::vector<float> before = as_input(*sample.down, row);
    const std::vector<float> after = as_input(*sample.down, moved);
    for (std::size_t i = 0; i < width; ++i) {
      const double step = static_cast<double>(after[i]) - before[i];
      change += step * step;
      largest = std::max(largest, step * step);
      norm += static_cast<double>(before[i]) * before[i];
    }
  }
  if (norm == 0) return 0.0;
  const double mean = norm / static_cast<double>(sample.rows.size());
  return std::sqrt(change / norm * reach / kMove + kExtraTies * largest / (static_cast<double>(values) * mean));
}

double layer_error_bound(const KernelCard& card, const HiddenSample& sample, const LayerInput& input) {
  // Quantized activations are the same codes in both kernels; card.inputs is about activations that stay as they are.
  double rounding = 0;
  double reach = 4 * std::sqrt(static_cast<double>(input.hidden)) * 0x1p-24;
  if (!sample.down->activation) {
    const double x = rounding_error(card.inputs, input.x, input.hidden);
    const double h = rounding_error(card.inputs, sample.rows, sample.intermediate);
    const double w = card.inputs == InputRounding::bf16 ? x : 0.0;
    // Scales may be rounded before codes times scales are, and so is the output.
    const double s = card.rounds_weights ? rounding_error(InputRounding::bf16, {}, 0) : 0.0;
    rounding = 2 * std::sqrt(2 * (x * x + w * w + s * s) + h * h + w * w + 2 * s * s);
  } else if (card.rounds_weights) {
    // Weights of three matrices, two of which meet in a hidden value, and the output.
    const double w = rounding_error(InputRounding::bf16, {}, 0);
    rounding = 2 * std::sqrt(4 * w * w);
    reach += 4 * std::sqrt(2.0) * w;
  }
  const std::int64_t values = input.tokens * input.top_k * sample.intermediate;
  return std::min(kLargestBound, kSumOrder + rounding + 2 * tie_error(sample, reach, values));
}

}  // namespace moracle
