// What w2 of an expert layer multiplies, seen from outside: the same layer with a unit matrix for w2 returns it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "scheme/canonical.h"
#include "scheme/codes.h"
#include "support/random_experts.h"

namespace moracle::test {

// The code that stands for 1, and for 0. Integer codes have the middle as their zero point.
inline std::pair<std::uint8_t, std::uint8_t> one_and_zero(Element element) {
  switch (element) {
    case Element::int4:
      return {9, 8};
    case Element::int8:
      return {129, 128};
    case Element::e4m3:
      return {encode_e4m3(1.0F), 0};
    case Element::e2m3:
      return {encode_e2m3(1.0F), 0};
    case Element::e3m2:
      return {encode_e3m2(1.0F), 0};
    default:
      return {encode_e2m1(1.0F), 0};
  }
}

// A w2 of the same scheme, shape and activations that returns its inputs [first, first + rows).
inline CanonicalLinear unit_rows(const CanonicalLinear& down, std::int64_t first) {
  MatrixSpec spec = down.weight->spec();
  spec.global_scale = 1.0F;
  MatrixPanel panel;
  panel.rows = spec.rows;
  const auto count = static_cast<std::size_t>(spec.rows * spec.cols);
  const auto set = [&](auto& values, auto one, auto zero) {
    values.assign(count, zero);
    for (std::int64_t row = 0; row < std::min(spec.rows, spec.cols - first); ++row)
      values[static_cast<std::size_t>(row * spec.cols + first + row)] = one;
  };
  if (spec.key.quantized()) {
    const auto [one, zero] = one_and_zero(spec.key.element);
    set(panel.codes, one, zero);
    const auto groups = static_cast<std::size_t>(spec.rows * spec.groups);
    panel.scales.assign(groups, 1.0F);
    if (!spec.key.symmetric) panel.zeros.assign(groups, zero);
  } else {
    set(panel.values, 1.0F, 0.0F);
  }
  CanonicalLinear unit{.weight = std::make_shared<MemoryMatrix>(std::move(spec), std::move(panel))};
  unit.activation = down.activation;
  unit.input_scale = down.input_scale;
  if (!down.bias.empty()) unit.bias.resize(down.bias.size());
  return unit;
}

inline CanonicalExperts with_unit_down(CanonicalExperts experts, std::int64_t first) {
  for (auto& expert : experts.experts) expert.down = unit_rows(expert.down, first);
  return experts;
}

}  // namespace moracle::test
