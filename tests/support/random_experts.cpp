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
  if (type == ScaleType::f16) return decode_f16(encode_f16(value));
  if (type == ScaleType::bf16) return decode_bf16(encode_bf16(value));
  return value;
}

float representable(Element element, float value) {
  if (element == Element::f16) return decode_f16(encode_f16(value));
  if (element == Element::bf16) return decode_bf16(encode_bf16(value));
  return value;
}

void fill_quantized(const MatrixSpec& spec, std::mt19937& rng, MatrixPanel& panel) {
  const int top = (1 << bits_of(spec.key.element)) - 1;
  std::uniform_int_distribution<int> code(0, top);
  const float unit = 2.0F / (static_cast<float>(top) * std::sqrt(static_cast<float>(spec.cols)));
  std::uniform_real_distribution<float> scale(0.5F * unit, 1.5F * unit);
  panel.codes.resize(static_cast<std::size_t>(spec.rows * spec.cols));
  for (auto& c : panel.codes) c = static_cast<std::uint8_t>(code(rng));
  panel.scales.resize(static_cast<std::size_t>(spec.rows * spec.groups));
  for (auto& s : panel.scales) s = representable(spec.key.scale, scale(rng));
  if (!spec.key.symmetric) {
    panel.zeros.resize(panel.scales.size());
    for (auto& z : panel.zeros) z = static_cast<std::uint8_t>(code(rng));
  }
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
    spec.group_cols =
        recipe.key.granularity.kind == Granularity::Kind::group ? recipe.key.granularity.cols : recipe.cols;
    spec.groups = ceil_div(recipe.cols, spec.group_cols);
    fill_quantized(spec, rng, panel);
    if (recipe.act_order) spec.g_idx = g_idx.empty() ? shuffled_groups(spec, rng) : std::move(g_idx);
  } else {
    std::normal_distribution<float> value(0.0F, 1.0F / std::sqrt(static_cast<float>(recipe.cols)));
    panel.values.resize(static_cast<std::size_t>(recipe.rows * recipe.cols));
    for (auto& v : panel.values) v = representable(recipe.key.element, value(rng));
  }
  CanonicalLinear linear{.weight = std::make_shared<MemoryMatrix>(std::move(spec), std::move(panel))};
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
                           .scheme = {.weight = recipe.key},
                           .zero_points = !recipe.key.symmetric,
                           .act_order = recipe.act_order,
                           .bias = recipe.bias,
                           .experts = {}};
  const MatrixRecipe wide{recipe.key, recipe.intermediate, recipe.hidden, recipe.act_order, recipe.bias};
  const MatrixRecipe narrow_{recipe.key, recipe.hidden, recipe.intermediate, recipe.act_order, recipe.bias};
  for (std::int64_t e = 0; e < recipe.experts; ++e) {
    CanonicalExperts::Expert expert;
    expert.gate = make_linear(wide, {}, rng);
    expert.up = make_linear(
        wide, recipe.shared_gate_up_order ? expert.gate.weight->spec().g_idx : std::vector<std::int32_t>{}, rng);
    expert.down = make_linear(narrow_, {}, rng);
    experts.experts.push_back(std::move(expert));
  }
  return experts;
}

}  // namespace moracle::test
