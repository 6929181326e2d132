#include "oracle/scheme_rule.h"

#include <algorithm>

namespace moracle {
namespace {

bool same_scale(ScaleType rule, ScaleType found) {
  if (rule != ScaleType::f32) return rule == found;
  return found == ScaleType::f32 || found == ScaleType::f16 || found == ScaleType::bf16;
}

}  // namespace

bool weight_matches(const SchemeRule& rule, std::span<const std::int32_t> group_sizes, const QuantKey& key) {
  if (rule.element != key.element || !same_scale(rule.scale, key.scale)) return false;
  if (rule.scale == ScaleType::none) return true;
  const Granularity& granularity = key.granularity;
  if (rule.granularity != granularity.kind || rule.second_level != key.second_level) return false;
  if (!key.symmetric && !rule.allow_asymmetric) return false;
  if (rule.rows != 0 && rule.rows != granularity.rows) return false;
  if (rule.cols != 0) return rule.cols == granularity.cols;
  return rule.granularity != Granularity::Kind::group || group_sizes.empty() ||
         std::find(group_sizes.begin(), group_sizes.end(), granularity.cols) != group_sizes.end();
}

bool scheme_matches(const SchemeRule& rule, std::span<const std::int32_t> group_sizes, const Scheme& scheme) {
  if (!weight_matches(rule, group_sizes, scheme.weight)) return false;
  return rule.activation ? scheme.activation == rule.activation_key : !scheme.activation.has_value();
}

}  // namespace moracle
