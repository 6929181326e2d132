#include "support/random_experts.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/checked.h"
#include "scheme/codes.h"

namespace moracle::test {

Result<> MemoryMatrix::read(std::int64_t begin, std::int64_t end, MatrixPanel& out) const {
  const auto slice = [&](const auto& from, std::int64_t width, auto& to) {
    if (from.empty()) {
      to.clear();
      return;
    }
    to.assign(from.begin() + begin * width, from.begin() + end * width);
  };
  out.rows = end - begin;
  slice(all_.codes, spec_.cols, out.codes);
  slice(all_.values, spec_.cols, out.values);
  slice(all_.scales, spec_.groups, out.scales);
  slice(all_.zeros, spec_.groups, out.zeros);
  return Ok{};
}

namespace {

float representable(ScaleType type, float value) {
  switch (type) {
    case ScaleType::f16:
      return decode_f16(encode_f16(value));
    case ScaleType::bf16:
      return decode_bf16(encode_bf16(value));
    case ScaleType::e4m3:
      return decode_e4m3(encode_e4m3(value));
    case ScaleType::e8m0:
      return decode_e8m0(encode_e8m0(value));
    default:
      return value;
  }
}

float representable(Element element, float value) {
  if (element == Element::f16) return decode_f16(encode_f16(value));
  if (element == Element::bf16) return decode_bf16(encode_bf16(value));
  return value;
}

// The largest magnitude an element code stands for, zero points aside.
float largest(Element element) {
  if (element == Element::e4m3) return 448.0F;
  if (element == Element::e2m1) return 6.0F;
  if (element == Element::e2m3) return 7.5F;
  if (element == Element::e3m2) return 28.0F;
  return static_cast<float>((1 << bits_of(element)) - 1);
}

void fill_quantized(const MatrixSpec& spec, std::mt19937& rng, MatrixPanel& panel) {
  const int top = (1 << bits_of(spec.key.element)) - 1;
  std::uniform_int_distribution<int> code(0, top);
  const float unit = 2.0F / (largest(spec.key.element) * std::sqrt(static_cast<float>(spec.cols)) * spec.global_scale);
  std::uniform_real_distribution<float> scale(0.5F * unit, 1.5F * unit);
  panel.codes.resize(static_cast<std::size_t>(spec.rows * spec.cols));
  for (std::size_t i = 0; i < panel.codes.size(); ++i) {
    std::uint8_t& c = panel.codes[i];
    c = static_cast<std::uint8_t>(code(rng));
    if (spec.key.element != Element::e4m3) continue;
    if ((c & 0x7FU) == 0x7FU) c ^= 1U;  // not NaN
    // Every second 8 columns without zeros and subnormal numbers, for which kernels have a faster path.
    if (i % static_cast<std::size_t>(spec.cols) / 8 % 2 == 1 && (c & 0x78U) == 0) c |= 0x38U;
  }
  panel.scales.resize(static_cast<std::size_t>(spec.rows * spec.groups));
  for (auto& s : panel.scales) s = representable(spec.key.scale, scale(rng));
  // Rows that share a scale have the first one's.
  const Granularity& granularity = spec.key.granularity;
  const std::int64_t sharing = granularity.kind == Granularity::Kind::tensor  ? spec.rows
                               : granularity.kind == Granularity::Kind::block ? granularity.rows
                                                                              : 1;
  for (std::int64_t r = 0; sharing > 1 && r < spec.rows; ++r) {
    std::copy_n(panel.scales.begin() + r / sharing * sharing * spec.groups, spec.groups,
                panel.scales.begin() + r * spec.groups);
  }
  if (!spec.key.symmetric) {
    panel.zeros.resize(panel.scales.size());
    for (auto& z : panel.zeros) z = static_cast<std::uint8_t>(code(rng));
  }
}

std::optional<float> static_scale(const std::optional<QuantKey>& activation, std::mt19937& rng) {
  if (!activation) return std::nullopt;
  std::uniform_real_distribution<float> amax(3.0F, 4.0F);  // of inputs of unit variance
  if (activation->second_level) return 448.0F * 6.0F / amax(rng);
  if (activation->dynamic) return std::nullopt;
  return amax(rng) / (activation->element == Element::int8 ? 127.0F : 448.0F);
}

std::vector<std::int32_t> shuffled_groups(const MatrixSpec& spec, std::mt19937& rng) {
  std::vector<std::int32_t> groups(static_cast<std::size_t>(spec.cols));
  for (std::size_t k = 0; k < groups.size(); ++k)
    groups[k] = static_cast<std::int32_t>(static_cast<std::int64_t>(k) / spec.group_cols);
  std::shuffle(groups.begin(), groups.end(), rng);
  return groups;
}

CanonicalLinear make_linear(const MatrixRecipe& recipe, std::vector<std::int32_t> g_idx, std::mt19937& rng) {
  MatrixSpec spec{.name = "random", .rows = recipe.rows, .cols = recipe.cols, .key = recipe.key};
  MatrixPanel panel;
  panel.rows = recipe.rows;
  if (recipe.key.quantized()) {
    const Granularity& granularity = recipe.key.granularity;
    const bool grouped = granularity.kind == Granularity::Kind::group || granularity.kind == Granularity::Kind::block;
    spec.group_cols = grouped ? granularity.cols : recipe.cols;
    if (recipe.key.second_level) spec.global_scale = 0.0078F;
    spec.groups = ceil_div(recipe.cols, spec.group_cols);
    fill_quantized(spec, rng, panel);
    if (recipe.act_order) spec.g_idx = g_idx.empty() ? shuffled_groups(spec, rng) : std::move(g_idx);
  } else {
    std::normal_distribution<float> value(0.0F, 1.0F / std::sqrt(static_cast<float>(recipe.cols)));
    panel.values.resize(static_cast<std::size_t>(recipe.rows * recipe.cols));
    for (auto& v : panel.values) v = representable(recipe.key.element, value(rng));
  }
  CanonicalLinear linear{.weight = std::make_shared<MemoryMatrix>(std::move(spec), std::move(panel))};
  linear.activation = recipe.activation;
  linear.input_scale = static_scale(recipe.activation, rng);
  if (recipe.bias) {
    std::normal_distribution<float> bias(0.0F, 0.5F);
    linear.bias.resize(static_cast<std::size_t>(recipe.rows));
    for (auto& b : linear.bias) b = bias(rng);
  }
  return linear;
}

}  // namespace

CanonicalLinear random_linear(const MatrixRecipe& recipe, std::mt19937& rng) {
  return make_linear(recipe, {}, rng);
}

CanonicalExperts random_experts(const ExpertsRecipe& recipe, std::mt19937& rng) {
  CanonicalExperts experts{.name = "random.experts",
                           .hidden = recipe.hidden,
                           .intermediate = recipe.intermediate,
                           .scheme = {.weight = recipe.key, .activation = recipe.activation},
                           .zero_points = !recipe.key.symmetric,
                           .act_order = recipe.act_order,
                           .bias = recipe.bias,
                           .experts = {}};
  const MatrixRecipe wide{recipe.key,    recipe.activation, recipe.intermediate,
                          recipe.hidden, recipe.act_order,  recipe.bias};
  const MatrixRecipe narrow_{recipe.key,          recipe.activation, recipe.hidden,
                             recipe.intermediate, recipe.act_order,  recipe.bias};
  for (std::int64_t e = 0; e < recipe.experts; ++e) {
    CanonicalExperts::Expert expert;
    expert.gate = make_linear(wide, {}, rng);
    if (recipe.gated) {
      expert.up = make_linear(
          wide, recipe.shared_gate_up_order ? expert.gate.weight->spec().g_idx : std::vector<std::int32_t>{}, rng);
    }
    expert.down = make_linear(narrow_, {}, rng);
    experts.experts.push_back(std::move(expert));
  }
  return experts;
}

}  // namespace moracle::test
