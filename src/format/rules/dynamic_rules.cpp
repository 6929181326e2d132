#include "format/rules/dynamic_rules.h"

namespace moracle {

Result<DynamicRules> DynamicRules::parse(const QuantConfig& config) {
  if (config.reader().has("extra_config")) return parse_extra_config(config);
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

Result<DynamicRules> DynamicRules::parse_extra_config(const QuantConfig& config) {
  DynamicRules rules;
  rules.section_ = "extra_config";
  MORACLE_ASSIGN(const std::vector<std::string> keys, config.ordered_keys("extra_config"));
  for (const bool regex : {false, true})
    for (const std::string& key : keys) {
      if ((key.find_first_of("*+?^$()[]{}|\\") != std::string::npos) != regex) continue;
      const Json& overrides = config.values["extra_config"][key];
      const std::string where = "extra_config/" + key;
      if (!overrides.is_object()) return config.error("config.type", where, "an object", overrides.type_name());
      const JsonReader reader(overrides, config.file, config.pointer + "/" + where);
      MORACLE_ASSIGN(const std::int64_t bits, reader.integer_or("bits", 4, 1, 64));
      MORACLE_ASSIGN(const std::int64_t activations, reader.integer_or("act_bits", 16, 1, 64));
      MORACLE_ASSIGN(const std::string type, reader.string_or("data_type", "int"));
      const bool skip = bits >= 16;
      if (activations < 16 || (!skip && type != "int"))
        return config.error("quant.unsupported", where, "integer weights and unquantized activations",
                            overrides.dump().substr(0, 200));
      MORACLE_TRY(
          rules.patterns_.add(regex ? Pattern::Kind::regex : Pattern::Kind::exact, regex ? ".*?(?:" + key + ")" : key));
      rules.rules_.push_back({.text = key, .skip = skip, .overrides = overrides});
    }
  return rules;
}

std::vector<std::string> DynamicRules::unmatched(const Checkpoint& checkpoint) const {
  std::vector<std::string> texts;
  for (const std::size_t index : patterns_.unmatched_indices(checkpoint)) texts.push_back(rules_[index].text);
  return texts;
}

Result<const DynamicRule*> DynamicRules::find(const ModuleRef& module) const {
  if (rules_.empty()) return static_cast<const DynamicRule*>(nullptr);
  MORACLE_ASSIGN(const int index, patterns_.first_index(names_of(module)));
  return index < 0 ? nullptr : &rules_[static_cast<std::size_t>(index)];
}

}  // namespace moracle
