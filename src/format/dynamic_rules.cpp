#include "format/dynamic_rules.h"

namespace moracle {

Result<DynamicRules> DynamicRules::parse(const QuantConfig& config) {
  DynamicRules rules;
  MORACLE_ASSIGN(const std::vector<std::string> keys, config.ordered_keys("dynamic"));
  for (const std::string& key : keys) {
    DynamicRule rule{.text = key, .skip = key.starts_with("-:")};
    const Json& overrides = config.values["dynamic"][key];
    if (overrides.is_object())
      rule.overrides = overrides;
    else if (!overrides.is_null() && !rule.skip)
      return config.error("config.type", "dynamic/" + key, "an object", overrides.type_name());
    const bool prefixed = rule.skip || key.starts_with("+:");
    MORACLE_TRY(rules.patterns_.add(Pattern::Kind::regex, prefixed ? key.substr(2) : key));
    rules.rules_.push_back(std::move(rule));
  }
  return rules;
}

Result<const DynamicRule*> DynamicRules::find(const ModuleRef& module) const {
  if (rules_.empty()) return static_cast<const DynamicRule*>(nullptr);
  MORACLE_ASSIGN(const int index, patterns_.first_index(names_of(module)));
  return index < 0 ? nullptr : &rules_[static_cast<std::size_t>(index)];
}

}  // namespace moracle
