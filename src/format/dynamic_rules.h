// The per-module override rules of GPTQ-style configs: `dynamic`.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "format/module_match.h"
#include "format/quant_config.h"

namespace moracle {

struct DynamicRule {
  std::string text;   // as written, with its prefix
  bool skip = false;  // "-:": the module is not quantized
  Json overrides = Json::object();
};

// An ordered map from regular expressions, matched from the start of the module name, to overrides. "-:" before the
// expression excludes the module, "+:" or nothing overrides keys. The first rule that matches holds.
class DynamicRules {
 public:
  // Errors: "config.type", "config.pattern".
  static Result<DynamicRules> parse(const QuantConfig& config);
  // Null when no rule matches.
  [[nodiscard]] Result<const DynamicRule*> find(const ModuleRef& module) const;
  [[nodiscard]] std::vector<std::string> unmatched(const Checkpoint& checkpoint) const {
    return patterns_.unmatched(checkpoint);
  }

 private:
  PatternList patterns_;
  std::vector<DynamicRule> rules_;
};

}  // namespace moracle
