// The per-module override rules of GPTQ-style configs: `dynamic`, and the `extra_config` of AutoRound.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "format/rules/module_match.h"
#include "format/rules/quant_config.h"

namespace moracle {

struct DynamicRule {
  std::string text;   // as written, with its prefix
  bool skip = false;  // "-:": the module is not quantized
  Json overrides = Json::object();
};

// An ordered map from regular expressions, matched from the start of the module name, to overrides. "-:" before the
// expression excludes the module, "+:" or nothing overrides keys. The first rule that matches holds.
//
// extra_config maps names to overrides; a name with characters special to regular expressions is one, found anywhere in
// the module name, and comes after the plain ones. 16 bits and more leave the module unquantized.
class DynamicRules {
 public:
  // Errors: "config.type", "config.pattern".
  static Result<DynamicRules> parse(const QuantConfig& config);
  // Null when no rule matches.
  [[nodiscard]] Result<const DynamicRule*> find(const ModuleRef& module) const;
  [[nodiscard]] const std::string& section() const { return section_; }  // the key that holds the rules
  // Rules that matched nothing, as written.
  [[nodiscard]] std::vector<std::string> unmatched(const Checkpoint& checkpoint) const;

 private:
  static Result<DynamicRules> parse_extra_config(const QuantConfig& config);

  std::string section_ = "dynamic";
  PatternList patterns_;
  std::vector<DynamicRule> rules_;
};

}  // namespace moracle
