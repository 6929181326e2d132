#include "oracle/rule_texts.h"

namespace moracle {
namespace {

void append_capability(std::string& out, int value) {
  out.append(std::to_string(value / 10)).append(".").append(std::to_string(value % 10));
}

}  // namespace

void append_machine(std::string& out, const Machine& machine) {
  out.append(to_string(machine.device)).append(" ").append(machine.arch);
  if (machine.device == DeviceKind::cpu) out.append(" with ").append(feature_list(machine.cpu_features));
}

void append_device_rule(std::string& out, const DeviceRule& rule) {
  out += to_string(rule.device);
  if (!rule.arch.empty()) out.append(" ").append(rule.arch);
  if (rule.cpu_features != 0) out.append(" with ").append(feature_list(rule.cpu_features));
  const bool lowest = rule.min_capability > 0;
  const bool highest = rule.max_capability < 9999;
  if (!lowest && !highest) return;
  out += " of capability";
  if (lowest && highest && rule.min_capability == rule.max_capability) {
    append_capability(out += " ", rule.min_capability);
    return;
  }
  if (lowest) append_capability(out += " from ", rule.min_capability);
  if (highest) append_capability(out += " to ", rule.max_capability);
}

void append_scheme_rule(std::string& out, const SchemeRule& rule, std::span<const std::int32_t> group_sizes) {
  QuantKey key{.element = rule.element,
               .scale = rule.scale,
               .granularity = {rule.granularity, rule.rows, rule.cols},
               .second_level = rule.second_level};
  const std::size_t begin = out.size();
  // As to_string(QuantKey) spells a key, with every accepted width.
  const auto respell = [&out, begin](std::string_view from, std::string_view to) {
    const std::size_t at = out.find(from, begin);
    if (at != std::string::npos) out.replace(at, from.size(), to);
  };
  const bool any_width = rule.granularity == Granularity::Kind::group && rule.cols == 0;
  if (any_width) key.granularity = Granularity::channel();
  append(out, key);
  if (rule.granularity == Granularity::Kind::block) respell(" block 0x0", " block");
  if (any_width && group_sizes.empty()) {
    respell(" channel", " group");
  } else if (any_width) {
    std::string widths = " g";
    append_joined(widths, group_sizes, "/", [](std::string& to, std::int32_t width) { to += std::to_string(width); });
    respell(" channel", widths);
  }
  if (rule.allow_asymmetric && rule.scale != ScaleType::none) out += " sym or asym";
  if (rule.activation) {
    append(out += " with ", rule.activation_key);
    out += " activations";
  }
}

}  // namespace moracle
