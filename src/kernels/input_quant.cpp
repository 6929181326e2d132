#include "kernels/input_quant.h"

#include <algorithm>
#include <array>

namespace moracle {

namespace {

constexpr auto kGroup = Granularity::Kind::group;

struct Row {
  InputKind kind;
  QuantKey key;  // of groups without their width
};
constexpr Row row(InputKind kind, Element element, ScaleType scale, Granularity granularity, bool dynamic = true,
                  bool second_level = false) {
  return {kind,
          {.element = element,
           .scale = scale,
           .granularity = granularity,
           .dynamic = dynamic,
           .second_level = second_level}};
}
constexpr std::array kRows{
    row(InputKind::int8_token, Element::int8, ScaleType::f32, Granularity::token()),
    row(InputKind::int8_tensor, Element::int8, ScaleType::f32, Granularity::tensor(), false),
    row(InputKind::e4m3_token, Element::e4m3, ScaleType::f32, Granularity::token()),
    row(InputKind::e4m3_group, Element::e4m3, ScaleType::f32, Granularity::group(0)),
    row(InputKind::e4m3_tensor, Element::e4m3, ScaleType::f32, Granularity::tensor(), false),
    row(InputKind::mx_e2m1, Element::e2m1, ScaleType::e8m0, Granularity::group(0)),
    row(InputKind::mx_e2m3, Element::e2m3, ScaleType::e8m0, Granularity::group(0)),
    row(InputKind::mx_e3m2, Element::e3m2, ScaleType::e8m0, Granularity::group(0)),
    row(InputKind::mx_e4m3, Element::e4m3, ScaleType::e8m0, Granularity::group(0)),
    row(InputKind::nvfp4, Element::e2m1, ScaleType::e4m3, Granularity::group(0), true, true),
};

}  // namespace

InputQuant input_quant(const QuantKey& key, std::optional<float> scale) {
  const auto* const found = std::ranges::find_if(kRows, [&](const Row& row) {
    return row.key.element == key.element && (row.key.scale == ScaleType::e8m0) == (key.scale == ScaleType::e8m0) &&
           row.key.granularity.kind == key.granularity.kind && row.key.dynamic == key.dynamic;
  });
  InputQuant input{.scale = scale.value_or(1.0F)};
  if (found == kRows.end()) return input;
  input.kind = found->kind;
  if (key.granularity.kind == kGroup) input.group = key.granularity.cols;
  return input;
}

std::optional<QuantKey> key_of(const InputQuant& input) {
  const auto* const found = std::ranges::find(kRows, input.kind, &Row::kind);
  if (found == kRows.end()) return std::nullopt;
  QuantKey key = found->key;
  if (key.granularity.kind == kGroup) key.granularity.cols = input.group;
  return key;
}

}  // namespace moracle
